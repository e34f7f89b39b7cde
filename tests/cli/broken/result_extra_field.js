export default Keep.workflow({
  name: "orders",
  topics: { "order.new": {} },
  consumers: {
    file: Keep.consumer({
      subscribe: ["order.new"],
      async prepare(ctx) {
        const [order] = await ctx.peek("order.new");
        return {
          reservations: [{ topic: "order.new", ids: [order.messageId] }],
          title: order.title,
        };
      },
      async mutate(ctx, prepared) {
        await ctx.gmail.send({ to: "me@example.com", subject: prepared.data, body: "" });
      },
    }),
  },
});

// expect 11:11 result-invalid: the fields are `reservations`, `data`, `ui`, `wakeAt`
