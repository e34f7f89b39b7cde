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
        await ctx.sheets.apendRow({ spreadsheetId: "orders", values: [] });
      },
      async next(ctx, prepared, mutationResult) {
      },
    }),
  },
});

// expect 13:15 method-unknown: did you mean `sheets.appendRow`? use one of `ctx.sheets.appendRow`, `ctx.sheets.getRow`, `ctx.sheets.rows`
