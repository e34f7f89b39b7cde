export default Keep.workflow({
  name: "orders",
  topics: ["order.new"],
  producers: {
    " poll": async (ctx) => {},
  },
});

// expect 5:5 name-invalid: write 1 to 100 visible characters, as in `order.paid` or `fileInvoice`
