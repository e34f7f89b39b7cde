export default Keep.workflow({
  name: "orders",
  topics: ["order.new"],
  jobs: Object.fromEntries(Array.from({ length: 201 }, (_, number) => [`job${number}`, async (ctx) => {}])),
});

// expect 1:30 too-many: split it into several workflows
