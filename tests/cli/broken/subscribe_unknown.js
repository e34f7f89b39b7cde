export default Keep.workflow({
  name: "orders",
  topics: { "order.new": {} },
  consumers: {
    file: Keep.consumer({
      subscribe: ["order.created"],
      async prepare(ctx) {
        return { reservations: [] };
      },
    }),
  },
});

// expect 6:19 topic-unknown: add it to `topics`, or use one of 'order.new'
