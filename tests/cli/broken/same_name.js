export default Keep.workflow({
  name: "orders",
  topics: { "order.new": {} },
  producers: {
    async orders(ctx) {
      await ctx.publish("order.new", { messageId: "1", title: "An order" });
    },
  },
  jobs: {
    async orders(ctx) {
      console.log(ctx.item);
    },
  },
});

// expect 10:5 handler-name: rename one of them: a handler's state is kept under its name
