"""A language model as a read, at a real endpoint: answers, answers that are kept, cost, and all that goes wrong."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from keep_actors.connectors import Answer, Catalog, Failed, Method, ReadCall
from keep_actors.kernel.time import VirtualTime
from keep_actors.outbound.secret import Secret
from keep_actors.services import SettingsError
from keep_actors.services.chat import Chat, ChatPrices, ChatSettings
from keep_actors.services.chat.answer import PROBLEMS, ChatProblem
from keep_storage.model import FailureClass
from tests.services.chat.model import API_KEY, Model
from tests.services.openapi.serving import served

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def at() -> Iterator[tuple[Model, int]]:
    model = Model()
    model.held.set()
    with served(model.app) as port:
        yield model, port


@pytest.fixture
def model(at: tuple[Model, int]) -> Model:
    at[0].asked.clear()
    at[0].keys.clear()
    at[0].arrived.clear()
    return at[0]


@pytest.fixture
def port(at: tuple[Model, int]) -> int:
    return at[1]


def chat_settings(port: int, **more: Any) -> ChatSettings:
    given: dict[str, Any] = {
        "base_url": f"http://127.0.0.1:{port}/v1",
        "allow": [f"127.0.0.1:{port}"],
        "model": "little",
        "api_key": Secret(API_KEY),
        "prices": ChatPrices(input=2.5, output=10),
        "bytes_max": 200_000,
    }
    return ChatSettings(**{**given, **more})


def call(workflow_id: str = "wf_1", run_id: str = "run_1") -> ReadCall:
    return ReadCall(workflow_id=workflow_id, run_id=run_id)


async def ask(ask: Method, params: Any, by: ReadCall | None = None) -> Any:
    """The answer, or `Failed`."""
    params = {"prompt": params} if isinstance(params, str) else params
    outcome = await ask.read(ask.decode_params(json.dumps(params)), by or call(), 10_000)
    return json.loads(outcome.json_text) if isinstance(outcome, Answer) else outcome


async def test_an_answer_has_its_words_its_model_and_what_was_used(model: Model, port: int) -> None:
    catalog = Catalog([Chat(chat_settings(port, temperature=0.5))])
    method = catalog.methods["chat.ask"]
    assert (method.kind, method.risk, method.timeout_ms) == ("read", "medium", 120_000)
    params: dict[str, Any] = {
        "system": "Be brief.",
        "messages": [
            {"role": "user", "content": "a"},
            {"role": "assistant", "content": "b"},
            {"role": "user", "content": "c"},
        ],
        "maxTokens": 10,
    }
    by = call()
    async with catalog.opened():
        answer = await ask(method, params, by)
    assert (answer["text"], answer["model"], answer["finish"]) == ("answer 1 to c", "little-1", "stop")
    assert answer["usage"] == {"inputTokens": 1000, "outputTokens": 200}
    assert answer["answeredAt"].endswith("Z")
    assert by.cost_micros == 4_500
    assert model.asked == [
        {
            "model": "little",
            "messages": [{"role": "system", "content": "Be brief."}, *params["messages"]],
            "stream": False,
            "max_tokens": 10,
            "temperature": 0.5,
        }
    ]


async def test_a_retry_sees_the_answer_that_the_first_run_saw_and_pays_nothing(model: Model, port: int) -> None:
    time = VirtualTime()
    catalog = Catalog([Chat(chat_settings(port, keep_answers="1h"), time=time)])
    method = catalog.methods["chat.ask"]
    async with catalog.opened():
        first = await ask(method, "why?")
        again = call(run_id="run_2")
        assert await ask(method, "why?", again) == first
        assert again.cost_micros == 0
        assert (await ask(method, "why?", call(workflow_id="wf_2")))["text"] == "answer 2 to why?"
        assert (await ask(method, {"prompt": "why?", "variant": "2"}))["text"] == "answer 3 to why?"
        assert (await ask(method, {"prompt": "why?", "maxTokens": 9}))["text"] == "answer 4 to why?"
        time.advance(3_600_000 - 1)
        assert await ask(method, "why?") == first
        time.advance(1)
        assert (await ask(method, "why?"))["text"] == "answer 5 to why?"


async def test_an_answer_in_a_folder_survives_a_restart(model: Model, port: int, tmp_path: Path) -> None:
    folder = tmp_path / "answers"
    time = VirtualTime()
    settings = chat_settings(port, folder=folder, keep_answers="1h")
    answers = []
    for _ in range(3):
        catalog = Catalog([Chat(settings, time=time)])
        async with catalog.opened():
            answers.append(await ask(catalog.methods["chat.ask"], "why?"))
        time.advance(40 * 60_000)
    assert answers[0] == answers[1]
    assert [each["text"] for each in answers] == ["answer 1 to why?", "answer 1 to why?", "answer 2 to why?"]
    [file] = folder.iterdir()
    assert (file.stat().st_mode & 0o777, folder.stat().st_mode & 0o777) == (0o600, 0o700)
    file.write_text("{", "utf-8")
    catalog = Catalog([Chat(settings, time=time)])
    async with catalog.opened():
        assert (await ask(catalog.methods["chat.ask"], "why?"))["text"] == "answer 3 to why?"


async def test_a_folder_that_is_gone_costs_no_answer(model: Model, port: int, tmp_path: Path) -> None:
    folder, time = tmp_path / "answers", VirtualTime()
    catalog = Catalog([Chat(chat_settings(port, folder=folder, keep_answers="1h"), time=time)])
    async with catalog.opened():
        folder.rmdir()
        time.advance(2 * 3_600_000)  # old answers are to be removed, too
        assert (await ask(catalog.methods["chat.ask"], "why?"))["text"] == "answer 1 to why?"


async def test_what_is_kept_is_bounded(model: Model, port: int, tmp_path: Path) -> None:
    old, young, foreign = (tmp_path / name for name in (f"{'a' * 64}.json", f"{'b' * 64}.json", "notes.json"))
    for path in (old, young, foreign):
        path.write_text("{}", "utf-8")
    time = VirtualTime(int(young.stat().st_mtime * 1_000))
    os.utime(old, (1, 1))
    os.utime(foreign, (1, 1))
    settings = chat_settings(port, answers_max=2, folder=tmp_path)
    catalog = Catalog([Chat(settings, time=time)])
    async with catalog.opened():
        assert names_in(tmp_path) == {young.name, foreign.name}
    catalog = Catalog([Chat(msgspec.structs.replace(settings, folder=None))])
    async with catalog.opened():
        for question in ("a", "b", "c", "c", "a"):
            await ask(catalog.methods["chat.ask"], question)
    assert [each["messages"][0]["content"] for each in model.asked] == ["a", "b", "c", "a"]


async def test_equal_questions_at_once_are_one_request(model: Model, port: int) -> None:
    catalog = Catalog([Chat(chat_settings(port))])
    method = catalog.methods["chat.ask"]
    answers: list[Any] = []
    calls = [call(run_id=f"run_{number}") for number in range(3)]

    async def one(by: ReadCall) -> None:
        answers.append(await ask(method, "hold", by))

    model.held.clear()
    async with catalog.opened(), anyio.create_task_group() as tasks:
        for each in calls:
            tasks.start_soon(one, each)
        await anyio.to_thread.run_sync(model.arrived.wait, 5)
        model.held.set()
    assert [each["text"] for each in answers] == ["answer 1 to hold"] * 3
    assert sorted(each.cost_micros for each in calls) == [0, 0, 4_500]
    assert len(model.asked) == 1


async def test_a_question_goes_on_if_the_one_who_asked_first_is_cancelled(model: Model, port: int) -> None:
    catalog = Catalog([Chat(chat_settings(port))])
    method = catalog.methods["chat.ask"]
    answers: list[Any] = []

    async def one() -> None:
        answers.append(await ask(method, "hold"))

    model.held.clear()
    async with catalog.opened(), anyio.create_task_group() as tasks:
        with anyio.CancelScope() as first:
            async with anyio.create_task_group() as inner:
                inner.start_soon(one)
                await anyio.to_thread.run_sync(model.arrived.wait, 5)
                tasks.start_soon(one)
                await anyio.wait_all_tasks_blocked()
                first.cancel()
        model.held.set()
    assert [each["text"] for each in answers] == ["answer 2 to hold"]


def names_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}


async def test_an_answer_can_be_json_of_a_schema(model: Model, port: int) -> None:
    catalog = Catalog([Chat(chat_settings(port))])
    async with catalog.opened():
        answer = await ask(catalog.methods["chat.ask"], {"prompt": "fit", "schema": SCHEMA})
    assert answer["json"] == {"city": "Bern"}
    form = model.asked[0]["response_format"]
    assert form == {"type": "json_schema", "json_schema": {"name": "answer", "strict": True, "schema": SCHEMA}}


@pytest.mark.parametrize(
    ("params", "cls", "words"),
    [
        ("limited", FailureClass.TRANSIENT, "429 Too Many Requests"),
        ("broken", FailureClass.TRANSIENT, "500"),
        ("unknown", FailureClass.PRECONDITION, "no such model"),
        ("too-long", FailureClass.LOGIC, "context length exceeded"),
        ("moved", FailureClass.PRECONDITION, "307"),
        ("garbage", PROBLEMS[ChatProblem.NOT_A_COMPLETION].failure_class, "no chat completion"),
        ("list", FailureClass.PRECONDITION, "no chat completion"),
        ("no-choice", FailureClass.PRECONDITION, "no chat completion"),
        ("silent", FailureClass.TRANSIENT, "has no text"),
        ("refusing", FailureClass.PRECONDITION, "refused to answer"),
        ("filtered", FailureClass.PRECONDITION, "content filter"),
        ("huge", FailureClass.PRECONDITION, "more than 200,000 bytes"),
        ({"prompt": "cut", "schema": SCHEMA}, FailureClass.LOGIC, "raise maxTokens"),
        ({"prompt": "chatty", "schema": SCHEMA}, FailureClass.TRANSIENT, "answered with something else"),
        ({"prompt": "misfit", "schema": SCHEMA}, FailureClass.TRANSIENT, "does not fit the schema"),
        ({"prompt": "x", "schema": {"$ref": "http://example.org/x"}}, FailureClass.LOGIC, "another document"),
        ({"prompt": "x", "schema": {"enum": ["y" * 20_000]}}, FailureClass.LOGIC, "more than 20,000 bytes"),
        ({"prompt": "x", "maxTokens": 5_000}, FailureClass.LOGIC, "4,096 are the most here"),
        ({"prompt": "x", "messages": []}, FailureClass.LOGIC, "either `prompt` or `messages`"),
        ({"messages": []}, FailureClass.LOGIC, "there are 1 to 200"),
        ({}, FailureClass.LOGIC, "either `prompt` or `messages`"),
        ("x" * 200_000, FailureClass.LOGIC, "200,000 are the most"),
    ],
    ids=lambda each: each if isinstance(each, str) and len(each) < 20 else "",
)
async def test_each_problem_has_its_error(model: Model, port: int, params: Any, cls: FailureClass, words: str) -> None:
    catalog = Catalog([Chat(chat_settings(port))])
    async with catalog.opened():
        failed = await ask(catalog.methods["chat.ask"], params)
        assert isinstance(failed, Failed), failed
        assert failed.cls is cls
        assert words in failed.message
        assert failed.retry_after_ms == (7_000 if params == "limited" else None)
        asked = len(model.asked)
        await ask(catalog.methods["chat.ask"], params)
        assert len(model.asked) == 2 * asked, "an error is not kept"


async def test_a_hanging_endpoint_costs_a_bounded_time(model: Model, port: int) -> None:
    catalog = Catalog([Chat(chat_settings(port, timeout_s=0.2))])
    model.held.clear()
    async with catalog.opened():
        failed = await ask(catalog.methods["chat.ask"], "hold")
    model.held.set()
    assert isinstance(failed, Failed)
    assert failed.cls is FailureClass.TRANSIENT


async def test_a_key_that_an_endpoint_repeats_is_shown_nowhere(model: Model, port: int, tmp_path: Path) -> None:
    catalog = Catalog([Chat(chat_settings(port, folder=tmp_path / "answers"))])
    async with catalog.opened():
        answer = await ask(catalog.methods["chat.ask"], "echo")
    assert answer["text"] == "your key is [secret]"
    [file] = (tmp_path / "answers").iterdir()
    assert API_KEY not in file.read_text("utf-8")
    catalog = Catalog([Chat(chat_settings(port, api_key=Secret("other-key-0123456789")))])
    async with catalog.opened():
        failed = await ask(catalog.methods["chat.ask"], "why?")
    assert isinstance(failed, Failed)
    assert failed.cls is FailureClass.AUTH
    assert "other-key" not in failed.message


async def test_an_absurd_usage_costs_nothing(model: Model, port: int) -> None:
    catalog = Catalog([Chat(chat_settings(port))])
    by = call()
    async with catalog.opened():
        answer = await ask(catalog.methods["chat.ask"], "absurd", by)
    assert (answer["text"], answer["usage"]) == ("hello", {"inputTokens": 0, "outputTokens": 0})
    assert by.cost_micros == 0


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"model": " "}, "model: is empty"),
        ({"bearer": Secret("abcd")}, "api_key: is a second secret"),
        ({"tokens_max": 0}, "tokens_max: is 0; write 1 to 1,000,000"),
        ({"at_once": 0}, "at_once: is 0"),
        ({"temperature": 3}, "temperature: is 3; write 0 to 2"),
        ({"prices": ChatPrices(input=-1, output=1)}, "prices.input: is -1"),
        ({"keep_answers": "soon"}, "keep_answers: is 'soon'"),
        ({"base_url": "http://example.org/v1"}, "base_url: is not encrypted"),
    ],
    ids=str,
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingsError) as caught:
        Chat(chat_settings(1, **settings))
    assert words in str(caught.value)
