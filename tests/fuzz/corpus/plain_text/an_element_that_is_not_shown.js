// 1000 64 1
Object.defineProperty([1, 2], 1, {value: 3, enumerable: false})