// 1000 64 0
(() => { let s = []; for (let i = 0; i < 60; i++) s = [s, s]; return s })()