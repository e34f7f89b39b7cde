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
        await ctx.gmail.send({ to: "me@example.com", subject: "Filed", body: "" });
      },
      async next(ctx, prepared, mutationResult) {
      },
    }),
  },
});

// expect 14:9 code-after-mutation: make one call per run: publish an event in `next`, and make the second call in another consumer
