export default Keep.workflow({
  name: "orders",
  topics: { "order.new": {} },
  producers: {
    async poll(ctx) {
      await ctx.gmail.send({ to: "me@example.com", subject: "Polling", body: "" });
    },
  },
});

// expect 6:13 mutation-misplaced: publish an event, and make the call in `mutate` of a consumer that subscribes to it
