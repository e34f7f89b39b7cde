export default Keep.workflow({
  name: "orders",
  topics: { "order.new": {} },
  producers: {
    poll: {
      schedule: "every 5 minutes",
      async handler(ctx) {
        await ctx.publish("order.new", { messageId: "1", title: "An order" });
      },
    },
  },
});

// expect 6:17 schedule-invalid: write `{interval: "5m"}` (s, m, h, d) or `{cron: "0 9 * * 1-5"}`, five fields
