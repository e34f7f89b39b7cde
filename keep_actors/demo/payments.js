// Invoices are paid at an unreliable bank; an urgent one goes out with a courier once it is paid.
//
// There is no retry and no error handling in here, and whatever the bank does, this script does not pay twice:
// it says which invoice to pay, and the host knows the outcome, asks the bank, or asks a person.

export default Keep.workflow({
  name: "payments",

  topics: {
    "invoice.approved": {},
    "parcel.ready": {},
  },

  consumers: {
    pay: Keep.consumer({
      subscribe: ["invoice.approved"],
      publishes: ["parcel.ready"],

      async prepare(ctx) {
        const [invoice] = await ctx.peek("invoice.approved", { limit: 1 });
        if (!invoice) return { reservations: [] };
        return {
          reservations: [{ topic: "invoice.approved", ids: [invoice.messageId] }],
          data: { invoice: invoice.messageId, ...invoice.payload },
          ui: { title: `Pay ${invoice.payload.amount} EUR for ${invoice.messageId}` },
        };
      },

      // In the ledger before it is sent. A process that is killed here leaves a question, and not a second payment.
      async mutate(ctx, { data }) {
        await ctx.bank.pay({ invoice: data.invoice, amount: data.amount });
      },

      // Runs once the payment is known to have happened, if the bank answered or was asked later.
      async next(ctx, { data }, mutationResult) {
        if (mutationResult.status !== "applied" || !data.urgent) return;
        const parcel = data.invoice.replace("inv", "parcel");
        await ctx.publish("parcel.ready", { messageId: parcel, title: `Parcel of ${data.invoice}`, payload: { to: data.to } });
      },
    }),

    ship: Keep.consumer({
      subscribe: ["parcel.ready"],

      async prepare(ctx) {
        const [parcel] = await ctx.peek("parcel.ready", { limit: 1 });
        if (!parcel) return { reservations: [] };
        return {
          reservations: [{ topic: "parcel.ready", ids: [parcel.messageId] }],
          data: { parcel: parcel.messageId, to: parcel.payload.to },
          ui: { title: `Send a courier with ${parcel.messageId}` },
        };
      },

      // The courier cannot be asked if a parcel has left. If this answer is lost, a person decides.
      async mutate(ctx, { data }) {
        await ctx.courier.dispatch({ parcel: data.parcel, to: data.to });
      },
    }),
  },
});
