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
        for (const value of prepared.data.values) {
          await ctx.sheets.appendRow({ spreadsheetId: "orders", values: [value] });
        }
      },
      async next(ctx, prepared, mutationResult) {
      },
    }),
  },
});

// expect 13:9 code-after-mutation: reserve one event per run, and the next run takes the next event; or use a job with `ctx.withItem`
