const settings = JSON.parse("{ broken");

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

// expect 1:22 load-error: at the top level a script only declares: move code that can fail into handlers
