export default Keep.workflow({
  name: "orders",
  topics: { "order.new": {} },
  consumers: {
    file: Keep.consumer({
      subscribe: ["order.new"],
      async prepare(ctx) {
        return { reservations: [] };
      },
    }),
    notify: Keep.consumer({
      subscribe: ["order.new"],
      async prepare(ctx) {
        return { reservations: [] };
      },
    }),
  },
});

// expect 12:19 topic-shared: a topic has one consumer: publish to another topic for the second consumer
