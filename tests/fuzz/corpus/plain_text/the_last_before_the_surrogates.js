// 1000 64 1
"\ud7ff\ue000\uffff\u{10ffff}"