export default Keep.workflow({
  name: "orders",
  topics: ["order.new"],
  producers: {
    " poll": async (ctx) => {},
  },
});

// expect 5:5 name-invalid: write 1 to 100 characters that a person can see, as in `order.paid` or `fileInvoice`
