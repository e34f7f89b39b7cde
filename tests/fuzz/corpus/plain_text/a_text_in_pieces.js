// 100000 64 1
(() => { let s = ""; for (let i = 0; i < 40; i++) s += "abc\u00e9".repeat(300); return [s] })()