export default Keep.workflow({
  name: "orders",
  topics: { "order.new": {}, "order.filed": {} },
  consumers: {
    file: Keep.consumer({
      subscribe: ["order.new"],
      publishes: [],
      async prepare(ctx) {
        const [order] = await ctx.peek("order.new", { limit: 1 });
        if (!order) return { reservations: [] };
        return { reservations: [{ topic: "order.new", ids: [order.messageId] }], data: order.payload };
      },
      async mutate(ctx, prepared) {
        await ctx.sheets.appendRow({ spreadsheetId: "orders", values: [prepared.data.from] });
      },
      async next(ctx, prepared, mutationResult) {
        await ctx.publish("order.filed", { messageId: "1", title: "Filed" });
      },
    }),
  },
});

// expect 17:27 topic-not-in-publishes: add it there, or publish elsewhere
