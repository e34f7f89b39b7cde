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
        const rows = await ctx.sheets.rows({ spreadsheetId: "orders" });
        return { rows: rows.length };
      },
    }),
  },
});

// expect 16:28 call-misplaced: read in `prepare`, in a producer or in a job, and pass on what is needed in `data`
