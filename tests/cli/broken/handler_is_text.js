export default Keep.workflow({
  name: "orders",
  topics: { "order.new": {} },
  producers: { poll: "every five minutes" },
});

// expect 4:16 handler-missing: write `async name(ctx, state) {...}`, or `{schedule, publishes, async handler(ctx, state) {...}}`
