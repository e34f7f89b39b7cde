export default Keep.workflow({
  name: "orders",
  topics: { "order.new": {} },
});

// expect 1:30 handlers-missing: add at least one of `producers`, `consumers`, `jobs`
