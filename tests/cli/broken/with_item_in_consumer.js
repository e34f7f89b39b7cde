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
        await ctx.withItem(prepared.data.id, "An order", async () => {
          await ctx.sheets.appendRow({ spreadsheetId: "orders", values: [] });
        });
      },
      async next(ctx, prepared, mutationResult) {
      },
    }),
  },
});

// expect 13:15 call-misplaced: items are for jobs; a consumer reserves events and makes one call in `mutate`
