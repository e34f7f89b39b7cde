import anyio
import pytest

from keep_actors.kernel import ActorStopped, Mailbox, MailboxFull

pytestmark = pytest.mark.anyio


@pytest.fixture
def mailbox() -> Mailbox[int]:
    return Mailbox("counter", capacity=3)


def fill(mailbox: Mailbox[int], *messages: int) -> None:
    for message in messages:
        mailbox.put(message)


async def test_messages_are_taken_in_the_order_they_were_put(mailbox: Mailbox[int]) -> None:
    fill(mailbox, 1, 2, 3)

    assert [mailbox.take(), mailbox.take(), mailbox.take()] == [1, 2, 3]


async def test_taking_many_takes_the_oldest_and_leaves_the_rest(mailbox: Mailbox[int]) -> None:
    fill(mailbox, 1, 2, 3)

    assert mailbox.take_many(2) == [1, 2]
    assert mailbox.take_many(2) == [3]
    assert mailbox.take_many(2) == []


async def test_taking_up_to_none_takes_none(mailbox: Mailbox[int]) -> None:
    fill(mailbox, 1)

    assert mailbox.take_many(0) == []
    assert len(mailbox) == 1


async def test_a_full_mailbox_refuses_and_says_whose_it_is_how_big_and_what_to_do(
    mailbox: Mailbox[int],
) -> None:
    fill(mailbox, 1, 2, 3)

    with pytest.raises(MailboxFull, match=r"'counter' is full \(3 messages\).*not accepted.*Wait for answers"):
        mailbox.put(4)
    assert mailbox.drain() == [1, 2, 3]


async def test_a_full_mailbox_accepts_again_once_something_was_taken(mailbox: Mailbox[int]) -> None:
    fill(mailbox, 1, 2, 3)
    mailbox.take()

    mailbox.put(4)

    assert mailbox.drain() == [2, 3, 4]


async def test_waiting_takes_nothing(mailbox: Mailbox[int]) -> None:
    fill(mailbox, 1)

    assert await mailbox.wait()
    assert await mailbox.wait()
    assert mailbox.drain() == [1]


async def test_a_waiting_reader_is_woken_by_a_message(mailbox: Mailbox[int]) -> None:
    taken: list[int] = []

    async def read() -> None:
        assert await mailbox.wait()
        taken.extend(mailbox.drain())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read)
        await anyio.wait_all_tasks_blocked()
        fill(mailbox, 1, 2)

    assert taken == [1, 2]


async def test_a_wait_that_is_cancelled_loses_nothing(mailbox: Mailbox[int]) -> None:
    with anyio.CancelScope() as scope:
        scope.cancel()
        await mailbox.wait()

    fill(mailbox, 1)

    assert await mailbox.wait()
    assert mailbox.take() == 1


async def test_a_wait_that_is_cancelled_as_the_message_arrives_loses_nothing(mailbox: Mailbox[int]) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(mailbox.wait)
        await anyio.wait_all_tasks_blocked()
        fill(mailbox, 1)
        tasks.cancel_scope.cancel()

    assert await mailbox.wait()
    assert mailbox.take() == 1


async def test_a_wait_can_be_cancelled_even_if_messages_are_there(mailbox: Mailbox[int]) -> None:
    fill(mailbox, 1)

    with anyio.CancelScope() as scope:
        scope.cancel()
        await mailbox.wait()

    assert scope.cancelled_caught
    assert mailbox.drain() == [1]


async def test_a_closed_mailbox_accepts_nothing_and_gives_out_what_it_has(mailbox: Mailbox[int]) -> None:
    fill(mailbox, 1)
    mailbox.close()

    with pytest.raises(ActorStopped, match="'counter' has stopped; this message was not processed"):
        mailbox.put(2)
    assert await mailbox.wait()
    assert mailbox.take() == 1
    assert not await mailbox.wait()


async def test_closing_wakes_a_waiting_reader(mailbox: Mailbox[int]) -> None:
    answers: list[bool] = []

    async def read() -> None:
        answers.append(await mailbox.wait())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read)
        await anyio.wait_all_tasks_blocked()
        mailbox.close()

    assert answers == [False]


async def test_closing_twice_is_closing_once(mailbox: Mailbox[int]) -> None:
    mailbox.close()
    mailbox.close()

    assert not await mailbox.wait()


async def test_draining_leaves_nothing(mailbox: Mailbox[int]) -> None:
    fill(mailbox, 1, 2)

    assert mailbox.drain() == [1, 2]
    assert len(mailbox) == 0
