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
        try {
          await ctx.sheets.appendRow({ spreadsheetId: "orders", values: [] });
        } catch (error) {
          console.log(error);
        }
      },
      async next(ctx, prepared, mutationResult) {
      },
    }),
  },
});

// expect 15:11 code-after-mutation: leave it out: the host handles a failed call, and `next` is given the outcome
