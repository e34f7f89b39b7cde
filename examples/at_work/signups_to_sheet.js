// Webhook → sheet: the web service publishes each call of its webhook, and this files it as a row.
export default Keep.workflow({
  name: "signups-to-sheet",
  topics: { "signup": {} },

  consumers: {
    file: Keep.consumer({
      subscribe: ["signup"],
      async prepare(ctx) {
        const [signup] = await ctx.peek("signup", { limit: 1 });
        if (!signup) return { reservations: [] };
        return {
          reservations: [{ topic: "signup", ids: [signup.messageId] }],
          data: signup.payload,
          ui: { title: `File ${signup.title}` },
        };
      },
      async mutate(ctx, { data }) {
        await ctx.signups.appendRow(data);
      },
    }),
  },
});
