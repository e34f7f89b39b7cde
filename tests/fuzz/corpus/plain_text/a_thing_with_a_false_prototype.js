// 1000 64 1
Object.setPrototypeOf(new Map([[1, 2]]), Object.prototype)