// 1000 64 1
Object.defineProperty([1], "toJSON", {value() { hit() }, enumerable: false})