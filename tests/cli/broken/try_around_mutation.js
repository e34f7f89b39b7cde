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

// expect 15:11 code-after-mutation: leave it out: a call that fails is seen to by the host, and `next` is told what became of it
