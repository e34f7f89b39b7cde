// Every mail becomes one row of a sheet, once, even if requests or answers get lost.
//
// A producer looks outside and publishes events. A consumer takes an event through three phases:
// `prepare` chooses, `mutate` makes one call, `next` publishes what follows. The host keeps the ledger.

export default Keep.workflow({
  name: "mail to sheet",

  topics: { "mail.received": {} },

  producers: {
    poll: {
      schedule: { interval: "30s" },
      publishes: ["mail.received"],
      // May run again after any failure: an event is named by its messageId, so none is made twice.
      async handler(ctx, state) {
        const mails = await ctx.mail.inbox({ after: state?.last ?? "" });
        for (const mail of mails) {
          await ctx.publish("mail.received", {
            messageId: mail.id,
            title: `Mail from ${mail.from}: "${mail.subject}"`,
            payload: { from: mail.from, subject: mail.subject },
          });
        }
        return { last: mails.at(-1)?.id ?? state?.last };
      },
    },
  },

  consumers: {
    file: Keep.consumer({
      subscribe: ["mail.received"],

      async prepare(ctx) {
        const [mail] = await ctx.peek("mail.received", { limit: 1 });
        if (!mail) return { reservations: [] };
        return {
          reservations: [{ topic: "mail.received", ids: [mail.messageId] }],
          data: { id: mail.messageId, ...mail.payload },
          ui: { title: `Add "${mail.payload.subject}" to the sheet` },
        };
      },

      // The call is the last thing that happens here. If its answer is lost, the host asks the sheet.
      async mutate(ctx, { data }) {
        await ctx.sheets.appendRow({ row: data.id, values: [data.from, data.subject] });
      },
    }),
  },
});
