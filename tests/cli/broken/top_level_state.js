let lastSeen = null;

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
        await ctx.sheets.appendRow({ spreadsheetId: "orders", values: [prepared.data.from] });
      },
      async next(ctx, prepared, mutationResult) {
      },
    }),
  },
});

// expect 1:5 top-level-state: handlers share no variables: keep it in the returned state, or pass it through a topic
