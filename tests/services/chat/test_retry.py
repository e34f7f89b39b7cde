"""A run that failed after its question is tried again, and sees the same answer."""

import pytest

import keep_actors
from keep_actors.backoff import Backoff
from keep_actors.connectors import Connector, Transient, mutation, read
from keep_actors.policy import Policy
from keep_actors.services.chat import Chat
from tests.services.chat.model import Model
from tests.services.chat.test_chat import chat_settings
from tests.services.openapi.serving import served

SCRIPT = """
export default Keep.workflow({
  name: "replies",
  topics: { mail: {} },
  consumers: {
    reply: Keep.consumer({
      subscribe: ["mail"],
      async prepare(ctx) {
        const [mail] = await ctx.peek("mail", { limit: 1 });
        if (!mail) return { reservations: [] };
        const answer = await ctx.chat.ask({ prompt: mail.title });
        await ctx.box.look({});
        return { reservations: [{ topic: "mail", ids: [mail.messageId] }], data: answer.text };
      },
      async mutate(ctx, { data }) {
        await ctx.box.send({ text: data });
      },
    }),
  },
});
"""


class Box(Connector):
    name = "box"

    def __init__(self) -> None:
        self.looks = 0
        self.sent: list[str] = []

    @read
    async def look(self) -> int:
        """Fail twice."""
        self.looks += 1
        if self.looks < 3:
            raise Transient("not yet")
        return self.looks

    @mutation
    async def send(self, text: str) -> str:
        """Send it."""
        self.sent.append(text)
        return text


@pytest.mark.anyio
async def test_a_run_that_is_tried_again_sees_the_same_answer() -> None:
    model, box = Model(), Box()
    model.held.set()
    policy = Policy(retry=Backoff(first_ms=1, cap_ms=1))
    with served(model.app) as port:
        connectors = [Chat(chat_settings(port)), box]
        async with keep_actors.open(":memory:", connectors=connectors, policy=policy, sandbox="thread") as keep:
            await keep.deploy(SCRIPT, grants="declared")
            await keep.publish("replies", "mail", message_id="m-1", title="why?", payload={})
            await keep.wait_idle()
            runs = await keep.runs("replies")
    assert box.sent == ["answer 1 to why?"]
    assert (box.looks, len(model.asked)) == (3, 1)
    assert len(runs) >= 3
