interface Order { id: string }

export default Keep.workflow({
  name: "orders",
  topics: { "order.new": {} },
  producers: {
    async poll(ctx) {
      const mails = await ctx.gmail.search();
      for (const mail of mails) await ctx.publish("order.new", { messageId: mail.id, title: mail.subject });
    },
  },
});

// expect 1:1 load-error: a script is JavaScript: leave out types, interfaces, enums and casts, and write JSDoc if you want types
