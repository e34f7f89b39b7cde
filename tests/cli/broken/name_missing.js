export default Keep.workflow({
  topics: { "order.new": {} },
  producers: {
    async poll(ctx) {
      await ctx.publish("order.new", { messageId: "1", title: "An order" });
    },
  },
});

// expect 1:30 name-missing: add `name: "..."` to Keep.workflow
