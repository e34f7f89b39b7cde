export default Keep.workflow({
  name: "orders",
  topics: { "order.new": {} },
  producers: {
    async poll(ctx) {
      for (const mail of await ctx.gmail.search()) {
        await ctx.publish("order.new", { id: mail.id, title: mail.subject, payload: mail });
      }
    },
  },
});

// expect 7:42 event-invalid: the fields are `messageId`, `title`, `payload`
