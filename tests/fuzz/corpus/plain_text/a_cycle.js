// 1000 64 1
(() => { const o = {}; o.list = [o]; return o })()