// 100 64 0
(() => { const o = {}; for (let i = 0; i < 90; i++) o["m" + i] = undefined; return Array(9).fill(o) })()