// 100000 4294967295 0
(() => { let s = 0; for (let i = 0; i < 257; i++) s = [s]; return s })()