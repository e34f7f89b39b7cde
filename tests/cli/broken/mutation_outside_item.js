export default Keep.workflow({
  name: "orders",
  jobs: {
    async remind(ctx) {
      for (const mail of await ctx.gmail.search()) {
        await ctx.gmail.send({ to: mail.from, subject: `Re: ${mail.subject}`, body: "" });
      }
    },
  },
});

// expect 6:15 mutation-misplaced: put it into an item: `await ctx.withItem(id, title, async () => {...})`
