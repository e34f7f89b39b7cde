const subjectOf = (mail: any): string => mail.subject;

export default Keep.workflow({
  name: "orders",
  topics: { "order.new": {} },
  producers: {
    async poll(ctx) {
      for (const mail of await ctx.gmail.search()) {
        await ctx.publish("order.new", { messageId: mail.id, title: subjectOf(mail) });
      }
    },
  },
});

// expect 1:24 load-error: a script is JavaScript: leave out types, interfaces, enums and casts, and write JSDoc if you want types
