export default Keep.workflow({
  name: "invoices",
  topics: { "invoice.received": {}, "invoice.filed": {} },

  producers: {
    poll: {
      schedule: { interval: "5m" },
      publishes: ["invoice.received"],
      async handler(ctx, state) {
        const mails = await ctx.gmail.search({ query: "invoice", after: state?.cursor });
        for (const mail of mails) {
          await ctx.publish("invoice.received", {
            messageId: mail.id,
            title: `Mail from ${mail.from}: "${mail.subject}"`,
            payload: { from: mail.from, subject: mail.subject },
          });
        }
        return { cursor: mails.at(-1)?.id ?? state?.cursor };
      },
    },
  },

  consumers: {
    file: Keep.consumer({
      subscribe: ["invoice.received"],
      publishes: ["invoice.filed"],
      async prepare(ctx, state) {
        const [invoice] = await ctx.peek("invoice.received", { limit: 1 });
        if (!invoice) return { reservations: [] };
        const rows = await ctx.sheets.rows({ spreadsheetId: "invoices" });
        const isKnown = rows.some((row) => row.values[0] === invoice.messageId);
        return {
          reservations: [{ topic: "invoice.received", ids: [invoice.messageId] }],
          data: { id: invoice.messageId, isKnown, ...invoice.payload },
          ui: { title: `Add "${invoice.payload.subject}" to the sheet` },
        };
      },
      async mutate(ctx, prepared) {
        const { id, isKnown, from, subject } = prepared.data;
        if (isKnown) return;
        await ctx.sheets.appendRow({ spreadsheetId: "invoices", values: [id, from, subject] });
      },
      async next(ctx, prepared, mutationResult) {
        if (mutationResult.status !== "applied") return;
        await ctx.publish("invoice.filed", {
          messageId: `filed:${prepared.data.id}`,
          title: `Filed: ${prepared.data.subject}`,
          payload: { rowId: mutationResult.result.rowId },
        });
      },
    }),
  },

  jobs: {
    thank: {
      schedule: { cron: "0 9 * * 1-5" },
      async handler(ctx) {
        for (const mail of await ctx.gmail.search({ query: "thank" })) {
          await ctx.withItem(`thank:${mail.id}`, `Thank ${mail.from}`, async (ctx) => {
            if (ctx.item.isDone) return;
            await ctx.gmail.send({ to: mail.from, subject: `Re: ${mail.subject}`, body: "You are welcome." });
          });
        }
      },
    },
  },
});
