export default Keep.workflow({
  name: "orders",
  topics: { "order.new": {} },
  consumers: {
    file: Keep.consumer({
      subscribe: ["order.new"],
      async mutate(ctx, prepared) {
        await ctx.gmail.send({ to: "me@example.com", subject: "An order", body: "" });
      },
    }),
  },
});

// expect 5:5 prepare-missing: add `async prepare(ctx, state) {...}` that returns `{reservations: [{topic, ids}], data}`
