export default Keep.workflow({
  name: "orders",
  topics: { "order.new": {} },
  producers: {
    async poll(ctx) {
      for (const mail of await ctx.gmail.search()) {
        await ctx.publish("orders.new", { messageId: mail.id, title: mail.subject });
      }
    },
  },
});

// expect 7:27 topic-unknown: did you mean `order.new`? add it to `topics`, or use a declared one
