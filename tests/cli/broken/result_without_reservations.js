export default Keep.workflow({
  name: "orders",
  topics: { "order.new": {} },
  consumers: {
    file: Keep.consumer({
      subscribe: ["order.new"],
      async prepare(ctx) {
        const [order] = await ctx.peek("order.new");
        return { data: order.title };
      },
      async mutate(ctx, prepared) {
        await ctx.gmail.send({ to: "me@example.com", subject: prepared.data, body: "" });
      },
    }),
  },
});

// expect 9:16 result-invalid: return `{ reservations: [{ topic, ids }], data, ui: { title }, wakeAt }`; `reservations: []` for nothing
