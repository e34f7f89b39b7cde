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
        const row = await ctx.sheets.appendRow({ spreadsheetId: "orders", values: [prepared.data.from] });
        console.log("filed", row.rowId);
      },
      async next(ctx, prepared, mutationResult) {
      },
    }),
  },
});

// expect 14:9 code-after-mutation: make the mutation the last thing in `mutate`, and move what follows to `next`
