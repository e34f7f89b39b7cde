// 1000 64 1
[new (class extends Array { toJSON() { hit() } })(1, 2)]