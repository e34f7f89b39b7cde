// 1000 64 1
Object.setPrototypeOf(Array.prototype, new Proxy({}, {get() { hit() }, has() { hit() }})); [1]