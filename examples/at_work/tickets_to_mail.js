// MCP → mail: urgent tickets of a Model Context Protocol server are mailed to the team, each once.
export default Keep.workflow({
  name: "tickets-to-mail",
  topics: { "ticket.urgent": {} },

  producers: {
    look: {
      schedule: { interval: "2s" },
      publishes: ["ticket.urgent"],
      async handler(ctx) {
        const { tickets } = await ctx.tickets.listTickets({ priority: "urgent" });
        for (const ticket of tickets) {
          await ctx.publish("ticket.urgent", {
            messageId: ticket.id,
            title: `Ticket ${ticket.id}: ${ticket.title}`,
            payload: ticket,
          });
        }
      },
    },
  },

  consumers: {
    tell: Keep.consumer({
      subscribe: ["ticket.urgent"],
      async prepare(ctx) {
        const [event] = await ctx.peek("ticket.urgent", { limit: 1 });
        if (!event) return { reservations: [] };
        return {
          reservations: [{ topic: "ticket.urgent", ids: [event.messageId] }],
          data: event.payload,
          ui: { title: `Tell the team of ${event.title}` },
        };
      },
      async mutate(ctx, { data }) {
        await ctx.mailbox.send({
          to: ["team@example.com"],
          subject: `Urgent: ${data.title}`,
          text: `Ticket ${data.id} is urgent: ${data.title}`,
        });
      },
    }),
  },
});
