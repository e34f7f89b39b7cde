// 1000 64 1
new Proxy([1, 2], {get() { hit() }, ownKeys() { hit(); return [] }, getOwnPropertyDescriptor() { hit() }})