"""Which two calls in an item are the same one: by method and subkey, or as the connector declares; not by words."""

import hashlib
from pathlib import Path

import apsw
import pytest

from keep_actors.connectors import Connector, PreconditionFailed, mutation
from keep_actors.testing import Box
from tests.runtime.fakes import Entry, Fake, raises
from tests.runtime.world import script

pytestmark = pytest.mark.anyio


def item(body: str) -> str:
    """A job that works on one item."""
    return script(job=f'await c.withItem("7", "Customer 7", async () => {{ {body} }});')


def mail(text: str, more: str = "") -> str:
    return f'await c.fake.add({{ text: "{text}" {more} }});'


FAILS = 'throw new Error("not done yet");'


async def states(box: Box) -> dict[str, str]:
    return {each.item_id: str(each.state) for each in await box.keep.items("flow")}


async def deployed(box: Box, body: str) -> None:
    await box.deploy(item(body), workflow="flow")
    await box.until_idle()


# Other words are the same call.


async def test_a_repair_that_changes_the_wording_sends_no_second_mail_and_asks() -> None:
    fake = Fake()
    async with Box.open(fake) as box:
        await deployed(box, mail("Dear Ann") + FAILS)
        await deployed(box, mail("Hello Ann"))
        assert fake.texts == ["Dear Ann"]
        assert await states(box) == {"7": "needs_attention"}
        [needs] = await box.keep.attention()
        assert (needs.kind, needs.item) == ("error", "7")
        assert "fake.add has already been done with other content, and is not done again" in needs.words
        await box.crash()
        await box.reopen()
        await box.advance(days=3)
        assert fake.texts == ["Dear Ann"]
        assert len(await box.keep.runs("flow")) == 2, "it waits for a person, and does not try again and again"


async def test_the_same_words_again_are_answered_from_the_ledger() -> None:
    fake = Fake()
    async with Box.open(fake) as box:
        await deployed(box, mail("Dear Ann") + FAILS)
        await deployed(box, mail("Dear Ann"))
        assert (fake.texts, await states(box)) == (["Dear Ann"], {"7": "done"})


async def test_a_call_that_did_not_happen_is_made_in_the_words_of_the_repair_under_the_same_key() -> None:
    fake = Fake()
    async with Box.open(fake) as box:
        fake.plan("add", raises(PreconditionFailed("the mailbox is full")))
        await deployed(box, mail("Dear Ann"))
        await box.deploy(item(mail("Hello Ann")), workflow="flow")
        await box.keep.clear_error("flow", by="ann")
        await box.until_idle()
        assert (fake.texts, await states(box)) == (["Hello Ann"], {"7": "done"})
        assert len(set(fake.keys)) == 1
        assert [each.params for each in await box.keep.outputs("flow")] == ['{"text":"Hello Ann"}']


# A second call.


async def test_a_second_different_call_of_a_method_in_one_item_is_a_mismatch_that_says_what_to_declare() -> None:
    fake = Fake()
    async with Box.open(fake) as box:
        await deployed(box, mail("to ann") + mail("to bob"))
        assert (fake.texts, await states(box)) == (["to ann"], {"7": "needs_attention"})
        words = (await box.keep.workflow("flow")).error
        assert "give it a `subkey`" in words
        assert "have the connector declare `identity`" in words


async def test_a_method_that_declares_its_identity_is_not_told_to_declare_one() -> None:
    fake = Fake()
    call = 'await c.fake.mark({ target: "ann", text: "TEXT" });'
    async with Box.open(fake) as box:
        await deployed(box, call.replace("TEXT", "one") + call.replace("TEXT", "two"))
        words = (await box.keep.workflow("flow")).error
        assert ("`subkey`" in words, "declare `identity`" in words) == (True, False)


async def test_with_a_subkey_both_go_out_once_however_often_the_item_is_entered() -> None:
    fake = Fake()
    both = mail("to ann", ", subkey: 'ann'") + mail("to bob", ", subkey: 'bob'")
    async with Box.open(fake) as box:
        await deployed(box, both + FAILS)
        await deployed(box, both)
        assert (fake.texts, await states(box)) == (["to ann", "to bob"], {"7": "done"})


async def test_with_an_identity_calls_for_two_targets_both_go_out() -> None:
    fake = Fake()
    both = "".join(f'await c.fake.note({{ target: "{each}", text: "Hi" }});' for each in ("ann", "bob"))
    async with Box.open(fake) as box:
        await deployed(box, both + FAILS)
        await deployed(box, both)
        assert (fake.texts, await states(box)) == (["ann: Hi", "bob: Hi"], {"7": "done"})


async def test_other_words_under_a_subkey_are_a_mismatch_too() -> None:
    fake = Fake()
    async with Box.open(fake) as box:
        await deployed(box, mail("Dear Ann", ", subkey: 'ann'") + FAILS)
        await deployed(box, mail("Hello Ann", ", subkey: 'ann'"))
        assert (fake.texts, await states(box)) == (["Dear Ann"], {"7": "needs_attention"})


async def test_equal_calls_with_different_subkeys_both_go_out_after_a_failure_between_them() -> None:
    fake = Fake()
    both = mail("Hi") + mail("Hi", ", subkey: 'again'")
    async with Box.open(fake) as box:
        await deployed(box, mail("Hi") + FAILS)
        await deployed(box, both)
        assert (fake.texts, await states(box)) == (["Hi", "Hi"], {"7": "done"})


# Following the advice.


async def test_who_gives_the_second_call_a_subkey_has_it_sent_and_the_first_is_not_repeated() -> None:
    fake = Fake()
    async with Box.open(fake) as box:
        await deployed(box, mail("to ann") + mail("to bob"))
        await box.deploy(item(mail("to ann") + mail("to bob", ", subkey: 'bob'")), workflow="flow")
        await box.keep.clear_error("flow", by="ann")
        await box.until_idle()
        assert (fake.texts, await states(box)) == (["to ann", "to bob"], {"7": "done"})


async def test_who_gives_both_calls_a_subkey_does_not_have_the_first_one_sent_again() -> None:
    fake = Fake()
    async with Box.open(fake) as box:
        await deployed(box, mail("to ann") + mail("to bob"))
        await box.deploy(item(mail("to ann", ", subkey: 'ann'") + mail("to bob", ", subkey: 'bob'")), workflow="flow")
        await box.keep.clear_error("flow", by="ann")
        await box.until_idle()
        assert (fake.texts, await states(box)) == (["to ann"], {"7": "needs_attention"})
        assert "without a `subkey`" in (await box.keep.workflow("flow")).error


async def test_who_takes_the_subkeys_away_does_not_have_a_call_sent_again() -> None:
    fake = Fake()
    async with Box.open(fake) as box:
        await deployed(box, mail("to ann", ", subkey: 'ann'") + FAILS)
        await deployed(box, mail("to ann"))
        assert (fake.texts, await states(box)) == (["to ann"], {"7": "needs_attention"})
        assert "with the `subkey` 'ann'" in (await box.keep.workflow("flow")).error


class Post(Connector):
    """Mails, whose target nobody has declared yet."""

    name = "post"

    def __init__(self, sent: list[str]) -> None:
        self.sent = sent

    @mutation
    async def send(self, to: str, text: str) -> Entry:
        """Send a mail."""
        self.sent.append(f"{to}: {text}")
        return Entry(str(len(self.sent)), text)


class PostByTarget(Post):
    """The same, as somebody has declared it since."""

    @mutation(identity=["to"])
    async def send(self, to: str, text: str) -> Entry:
        """Send a mail."""
        self.sent.append(f"{to}: {text}")
        return Entry(str(len(self.sent)), text)


async def test_who_has_the_connector_declare_its_identity_does_not_have_the_first_call_sent_again(
    tmp_path: Path,
) -> None:
    sent: list[str] = []
    two = "".join(f'await c.post.send({{ to: "{each}", text: "Hi" }});' for each in ("ann", "bob"))
    path = tmp_path / "keep.db"
    async with Box.open(Post(sent), path=path) as box:
        await deployed(box, two)
        assert (sent, await states(box)) == (["ann: Hi"], {"7": "needs_attention"})
    async with Box.open(PostByTarget(sent), path=path) as box:
        await box.keep.clear_error("flow", by="ann")
        await box.until_idle()
        assert (sent, await states(box)) == (["ann: Hi", "bob: Hi"], {"7": "done"})


# A ledger that an earlier version wrote, with the words in the identity.


def make_older(path: Path) -> None:
    """Write the identities of a file as the version before did: over the parameters, and without the subkey."""
    with apsw.Connection(str(path)) as file:
        lines = file.execute("SELECT id, workflow_id, item_id, item_attempt, params FROM mutations").fetchall()
        for mutation_id, *parts, params in lines:
            words = "\0".join([*map(str, parts), "fake.add", str(params), ""])
            key = hashlib.sha256(words.encode()).hexdigest()
            file.execute(
                "UPDATE mutations SET identity_key = ?, idempotency_key = ?, subkey = NULL WHERE id = ?",
                (key, key, mutation_id),
            )


@pytest.mark.parametrize("subkey", ["", ", subkey: 'ann'"])
@pytest.mark.parametrize(("words", "state"), [("Dear Ann", "done"), ("Hello Ann", "needs_attention")])
async def test_a_ledger_of_an_earlier_version_is_recognised(
    tmp_path: Path, words: str, state: str, subkey: str
) -> None:
    fake, path = Fake(), tmp_path / "keep.db"
    async with Box.open(fake, path=path) as box:
        await deployed(box, mail("Dear Ann", subkey) + FAILS)
    make_older(path)
    async with Box.open(fake, path=path) as box:
        await deployed(box, mail(words, subkey))
        assert (fake.texts, await states(box)) == (["Dear Ann"], {"7": state})
        box.check_invariants()


async def test_two_calls_in_a_ledger_of_an_earlier_version_are_each_recognised_by_their_words(tmp_path: Path) -> None:
    fake, path = Fake(), tmp_path / "keep.db"
    both = mail("to ann", ", subkey: 'ann'") + mail("to bob", ", subkey: 'bob'")
    async with Box.open(fake, path=path) as box:
        await deployed(box, both + FAILS)
    make_older(path)
    async with Box.open(fake, path=path) as box:
        # As the script was written then: the words told the two calls apart.
        await deployed(box, mail("to ann") + mail("to bob"))
        assert (fake.texts, await states(box)) == (["to ann", "to bob"], {"7": "done"})
