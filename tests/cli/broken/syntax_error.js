export default Keep.workflow({
  name: "orders",
  topics: { "order.new": {} },
  producers: {
    async poll(ctx) {
      for (const mail of await ctx.gmail.search({ query: "order" }) {
        await ctx.publish("order.new", { messageId: mail.id, title: mail.subject });
      }
    },
  },
});

// expect 6:69 load-error: this is not valid JavaScript: look for a missing bracket, comma or quote just before this place
