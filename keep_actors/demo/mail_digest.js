// One mail about many: collect the mails that come in, and send a digest when the first has waited long enough.
//
// `wakeAt` is kept in the file: if the runtime is killed while this sleeps, the next one wakes it.

// An hour in real life; here you are watching.
const PATIENCE_MS = 4000;

export default Keep.workflow({
  name: "mail digest",

  topics: { "mail.seen": {} },

  producers: {
    look: {
      schedule: { interval: "30s" },
      publishes: ["mail.seen"],
      async handler(ctx, state) {
        const mails = await ctx.mail.inbox({ after: state?.last ?? "" });
        for (const mail of mails) {
          await ctx.publish("mail.seen", { messageId: mail.id, title: `Mail "${mail.subject}"`, payload: mail.subject });
        }
        return { last: mails.at(-1)?.id ?? state?.last };
      },
    },
  },

  consumers: {
    send: Keep.consumer({
      subscribe: ["mail.seen"],

      async prepare(ctx, state) {
        const mails = await ctx.peek("mail.seen");
        if (mails.length === 0) return { reservations: [] };
        const due = Date.parse(mails[0].createdAt) + PATIENCE_MS;
        if (Date.now() < due) return { reservations: [], wakeAt: new Date(due).toISOString() };
        return {
          reservations: [{ topic: "mail.seen", ids: mails.map((mail) => mail.messageId) }],
          data: { number: (state?.sent ?? 0) + 1, subjects: mails.map((mail) => mail.payload) },
          ui: { title: `Send a digest of ${mails.length} mails` },
        };
      },

      async mutate(ctx, { data }) {
        await ctx.mail.send({ to: "me@example.com", subject: `digest-${data.number}`, body: data.subjects.join("\n") });
      },

      async next(ctx, prepared, mutationResult) {
        if (mutationResult.status === "applied") return { sent: prepared.data.number };
      },
    }),
  },
});
