export default Keep.workflow({
  name: "orders",
  topics: { "order.new": {} },
  producers: {
    poll: { schedule: { interval: "5m" }, publishes: ["order.new"] },
  },
});

// expect 5:5 handler-missing: write `async name(ctx, state) {...}`, or `{schedule, publishes, async handler(ctx, state) {...}}`
