// Mail → database: every mail whose subject begins with "Order" becomes a row.
export default Keep.workflow({
  name: "orders-from-mail",
  topics: { "order.received": {} },

  producers: {
    look: {
      schedule: { interval: "2s" },
      publishes: ["order.received"],
      async handler(ctx) {
        for (const mail of await ctx.mailbox.search({ subject: "Order" })) {
          const [, number, amount] = /^Order (\S+) over (\d+) EUR$/.exec(mail.subject) ?? [];
          if (!number) continue;
          // The same mail is found again and again. Its message id is one event.
          await ctx.publish("order.received", {
            messageId: mail.messageId,
            title: `Order ${number} from ${mail.from[0].address}`,
            payload: { number, amount: Number(amount), customer: mail.from[0].address },
          });
        }
      },
    },
  },

  consumers: {
    enter: Keep.consumer({
      subscribe: ["order.received"],
      async prepare(ctx) {
        const [order] = await ctx.peek("order.received", { limit: 1 });
        if (!order) return { reservations: [] };
        return {
          reservations: [{ topic: "order.received", ids: [order.messageId] }],
          data: order.payload,
          ui: { title: `Enter ${order.title}` },
        };
      },
      async mutate(ctx, { data }) {
        await ctx.orders.insertOrders(data);
      },
    }),
  },
});
