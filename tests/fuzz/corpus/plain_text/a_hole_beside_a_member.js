// 1000 64 1
(() => { const a = [, 1]; a.x = 2; return a })()