// 1000 64 1
[1, -Infinity]