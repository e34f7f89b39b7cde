export default Keep.workflow({
  name: "orders",
  topics: { "order.new": {} },
  consumers: {
    file: Keep.consumer({
      subscribe: ["order.new"],
      orderingKey: (event) => event.payload.customer,
      async prepare(ctx) {
        return { reservations: [] };
      },
    }),
  },
});

// expect 7:7 ordering-key-invalid: write the path of the key, as in `orderingKey: "customer.id"`
