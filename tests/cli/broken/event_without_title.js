export default Keep.workflow({
  name: "orders",
  topics: { "order.new": {} },
  producers: {
    async poll(ctx) {
      for (const mail of await ctx.gmail.search()) {
        await ctx.publish("order.new", { messageId: mail.id, payload: mail });
      }
    },
  },
});

// expect 7:40 event-invalid: write `{ messageId, title, payload }`: the id in the outside system, a title for people, JSON
