// 100000 64 1
["abcdefghij".repeat(900).slice(100, 8900)]