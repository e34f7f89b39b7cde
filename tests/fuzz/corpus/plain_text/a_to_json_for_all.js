// 1000 64 1
Object.prototype.toJSON = () => hit(); ({a: [1]})