// 1000 64 1
({a: undefined, b: [undefined, , ].concat(1), c: {d: undefined}})