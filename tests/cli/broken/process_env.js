export default Keep.workflow({
  name: "orders",
  topics: { "order.new": {}, "order.filed": {} },
  consumers: {
    file: Keep.consumer({
      subscribe: ["order.new"],
      async prepare(ctx) {
        const [order] = await ctx.peek("order.new", { limit: 1 });
        if (!order) return { reservations: [] };
        return { reservations: [{ topic: "order.new", ids: [order.messageId] }], data: order.payload };
      },
      async mutate(ctx, prepared) {
        await ctx.gmail.send({ to: process.env.OWNER, subject: "An order", body: "" });
      },
      async next(ctx, prepared, mutationResult) {
      },
    }),
  },
});

// expect 13:36 global-unknown: there is no environment: write settings as constants, or read them with a connector
