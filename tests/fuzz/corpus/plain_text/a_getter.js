// 1000 64 0
({a: 1, get b() { hit() }, set b(v) { hit() }})