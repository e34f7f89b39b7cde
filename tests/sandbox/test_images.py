"""Images of memory: every invocation begins with one, and leaves nothing behind."""

import gc
import threading
from collections.abc import Iterator

import msgspec
import pytest

from keep_sandbox import CpuLimit, Limits, MemoryLimit, StackLimit, Value
from keep_sandbox.compiled import machine_code
from keep_sandbox.engine import IDLE_MAX, Engine
from keep_sandbox.guest import Guest
from keep_sandbox.images import Image, ScriptImage
from keep_sandbox.invocation import Invocation
from keep_sandbox.outcomes import InvocationEnd, Kind
from keep_sandbox.shim import LOAD_HEAD, ShimResult, put
from keep_sandbox.wasm import Instance
from tests.sandbox.world import Attack, attacks, gmail, invocation, prepare, prepare_script, trusted

PRELUDE_SHA256 = "6bdb2962e3e6b7d1c7961ba5d464ec57199f581f1e7284cdaddf9b6a34d1b1e4"
FAST = Limits(fuel=160_000_000)


class Heard:
    """A sink that keeps everything, and answers requests as the attacks expect."""

    def __init__(self) -> None:
        self.said: list[object] = []
        self.open: list[int] = []
        self.ending: InvocationEnd | None = None

    def request(self, request_id: int, kind: Kind, name: str, params: str) -> None:
        self.said.append((request_id, kind, name, params))
        self.open.append(request_id)

    def log(self, line: str) -> None:
        self.said.append(line)

    def end(self, ending: InvocationEnd) -> None:
        self.said.append(ending)
        self.ending = ending


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine(machine_code())


@pytest.fixture
def fresh() -> Engine:
    return Engine(machine_code())


def run(engine: Engine, given: Invocation, limits: Limits = FAST) -> tuple[Heard, int]:
    """Run to the end; return all that was heard, and the fuel that was used."""
    guest, heard = Guest(engine, limits), Heard()
    guest.run(given, heard)
    while not guest.ended and heard.open:
        guest.answer(heard.open.pop(0), "[1,2]")
    used = limits.fuel - guest.fuel_left
    guest.close()
    return heard, used


def idle(engine: Engine) -> Iterator[Instance]:
    yield from engine._idle


@pytest.mark.parametrize("attack", [*attacks("attacks.json"), *attacks("further.json")], ids=lambda each: each.id)
def test_after_every_attack_the_memory_is_that_of_the_prelude_byte_for_byte(engine: Engine, attack: Attack) -> None:
    run(engine, invocation(attack.source))
    assert list(idle(engine))
    for instance in idle(engine):
        assert engine.prelude.is_in(instance)
        assert instance.stack_pointer == instance.stack_top


def test_a_memory_that_differs_in_one_byte_would_be_seen(engine: Engine) -> None:
    run(engine, prepare("return 1"))
    instance, image = next(idle(engine)), engine.prelude
    for place in (0, 4_000, instance.stack_top, image.top + 5, instance.size - 1):
        instance.memory[place] ^= 1
        assert not image.is_in(instance)
        instance.memory[place] ^= 1
    assert image.is_in(instance)


def test_the_image_of_the_prelude_is_the_same_on_every_machine(engine: Engine) -> None:
    """If the engine or the prelude changed: write what the test shows."""
    assert engine.prelude.sha256 == PRELUDE_SHA256
    assert Engine(machine_code()).prelude.sha256 == PRELUDE_SHA256


BUSY = """
  const all = [];
  for (let i = 0; i < 50; i++) all.push({ i, text: "x".repeat(i), at: Date.now(), random: Math.random() });
  console.log(all.length);
  const found = await ctx.gmail.search({ q: all[3] });
  return [all.slice(0, 3), found, JSON.stringify(all).length]
"""


def test_the_same_inputs_use_the_same_fuel_whatever_ran_before(engine: Engine) -> None:
    other = Engine(machine_code())
    traces = []
    for one in (engine, engine, other):
        heard, used = run(one, prepare(BUSY))
        traces.append((heard.said, used))
        run(one, prepare("globalThis.x = 1; return new Array(1e5).fill(Math.random()).length"))
    assert traces[0] == traces[1] == traces[2]
    assert traces[0][1] > 100_000


def test_a_script_that_runs_out_of_fuel_does_so_at_the_same_instruction(engine: Engine) -> None:
    body = "let n = 0; for (;;) { n++; if (n % 1000 === 0) console.log(n) }"
    limits = Limits(fuel=20_000_000, log_lines=10_000)
    first, second = (run(engine, prepare(body), limits)[0].said for _ in range(2))
    assert first == second
    assert len(first) > 10
    assert isinstance(first[-1], CpuLimit)
    more = run(engine, prepare(body), Limits(fuel=21_000_000, log_lines=10_000))[0].said
    assert len(more) > len(first)


def test_a_script_is_loaded_once_and_its_top_level_is_not_run_again(fresh: Engine) -> None:
    before = fresh.image_count
    source = prepare_script(
        "return table.length", "const table = []; for (let i = 0; i < 20000; i++) table.push(i * i);"
    )
    first, second = (run(fresh, invocation(source), Limits())[0].ending for _ in range(2))
    assert first == second == Value(value="20000")
    assert fresh.image_count == before + 1
    # Loading it takes more than this; running it does not.
    assert isinstance(run(fresh, invocation(source), Limits(fuel=1_000_000))[0].ending, CpuLimit)


@pytest.mark.parametrize(
    ("top", "body"),
    [
        ("const at = Date.now();", "return at"),
        ("const at = new Date().getTime();", "return at"),
        ("const at = Date();", "return at.length > 0 ? Date.now() : 0"),
        ("const at = Math.random();", "return at"),
        ("console.log('loading');", "return Date.now()"),
        ("class D extends Date {}; const at = new D().getTime();", "return at"),
    ],
)
def test_a_script_whose_loading_has_effects_is_loaded_each_time(fresh: Engine, top: str, body: str) -> None:
    before = fresh.image_count
    source = prepare_script(body, top)
    one = invocation(source, seed=1)
    other = Invocation(source=source, handler=one.handler, args=one.args, now_ms=one.now_ms + 5, seed=2)
    first, second, third = (run(fresh, each)[0].said for each in (one, other, one))
    assert first == third != second
    assert fresh.image_count == before


def test_jobs_that_loading_left_behind_belong_to_each_invocation(engine: Engine) -> None:
    top = "let n = 0; (async () => { for (;;) { await null; n++ } })();"
    source = prepare_script("const first = n; await null; return [n > first, n < 1000]", top)
    assert [run(engine, invocation(source))[0].ending for _ in range(2)] == [Value(value="[true,true]")] * 2


def test_memory_with_a_large_hole_comes_back_whole(engine: Engine) -> None:
    """The image must not end at the first zeros: behind them are objects that the script made later."""
    top = (
        "const hole = new Uint8Array(8_000_000); const after = {}; for (let i = 0; i < 5000; i++) after['k' + i] = [i];"
    )
    source = prepare_script("return [hole.length, after.k4999[0], Object.keys(after).length]", top)
    for _ in range(3):
        assert run(engine, invocation(source), Limits())[0].ending == Value(value="[8000000,4999,5000]")
        run(engine, prepare("return 1"))


def test_a_memory_with_the_difference_of_a_script_is_the_memory_that_was_loaded(engine: Engine) -> None:
    """Also what lies far above the prelude, and between zeros."""
    tops = ("", "const hole = new Uint8Array(8_000_000); const after = [...'abc'].map((c) => c.repeat(5_000));")
    for top in tops:
        loaded, source = engine.take(), prepare_script("return 1", top).encode()
        about = msgspec.json.encode(FAST)
        head = LOAD_HEAD.pack(0, 0, FAST.heap_bytes, FAST.js_stack_bytes, len(about), len(source))
        loaded.fuel = FAST.fuel
        assert put(loaded, head + about + source)
        assert loaded.call("load") == ShimResult.LOADED
        heap_top, other = engine.seen(loaded).heap_top, engine.take()
        ScriptImage(engine.prelude, loaded, heap_top).write(other)
        assert Image(loaded, heap_top).is_in(other)
        engine.give_back(other)
        assert engine.prelude.is_in(other)


def test_images_and_instances_are_bounded(fresh: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    run(fresh, prepare("return -1"))
    monkeypatch.setattr("keep_sandbox.engine.IMAGES_BYTES_MAX", 5 * fresh.images_bytes)
    for number in range(20):
        assert run(fresh, prepare(f"return {number}"))[0].ending == Value(value=str(number))
    assert 3 <= fresh.image_count <= 5
    monkeypatch.setattr("keep_sandbox.engine.IMAGES_BYTES_MAX", 1)
    assert run(fresh, prepare("return 20"))[0].ending == Value(value="20")
    assert fresh.image_count == 1
    assert len(list(idle(fresh))) <= IDLE_MAX


def test_an_invocation_leaves_no_cycle_behind(engine: Engine) -> None:
    """A cycle would hold a memory of 80 MB until the next collection, and a worker collects rarely."""
    endings = ("return 1", "await ctx.gmail.send({ to: 'a' })", "throw new Error('no')", "for (;;);")
    for each in endings:
        run(engine, prepare(each))
    gc.collect()
    gc.disable()
    try:
        for each in endings:
            run(engine, prepare(each))
        assert gc.collect() == 0
    finally:
        gc.enable()


def test_limits_are_part_of_an_image(engine: Engine) -> None:
    body = "return new Array(300_000).fill(1).length"
    small, large = Limits(heap_bytes=2_000_000), Limits()
    for limits, expected in ((small, MemoryLimit), (large, Value), (small, MemoryLimit)):
        assert isinstance(run(engine, prepare(body), limits)[0].ending, expected)


def test_suspended_scripts_keep_their_own_memory(engine: Engine) -> None:
    guests = []
    for number in range(10):
        guest, heard = Guest(engine, FAST), Heard()
        guest.run(
            prepare(f"const mine = {number}; const found = await ctx.gmail.search({{}}); return [mine, found]"), heard
        )
        guests.append((guest, heard))
    for number, (guest, heard) in reversed(list(enumerate(guests))):
        guest.answer(1, str(number * 10))
        guest.close()
        assert heard.ending == Value(value=f"[{number},{number * 10}]")


def test_threads_share_an_engine(engine: Engine) -> None:
    wrong: list[object] = []

    def work(number: int) -> None:
        for turn in range(30):
            heard, _ = run(engine, prepare(f"return {number} * 100 + ev.turn", args=f'[{{"turn":{turn}}}]'))
            if heard.ending != Value(value=str(number * 100 + turn)):
                wrong.append(heard.ending)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.parametrize(
    "body",
    [
        "\n\nfor (;;) Math.sqrt(2)",
        "\n\nconst a = [];\nfor (;;) a.push({})",
        "\n\nlet s = '';\nfor (;;) s += Math.random()",
        "\n\n[3, 2, 1].sort(() => { for (;;) Math.abs(1) })",
    ],
)
def test_a_script_without_fuel_says_where_it_was(engine: Engine, body: str) -> None:
    ending = run(engine, prepare(body))[0].ending
    assert isinstance(ending, CpuLimit)
    assert ending.place is not None
    assert ending.place.line in (4, 5)


def test_no_stack_is_deep_enough_to_break_the_engine(engine: Engine) -> None:
    deep = "[" * 20_000
    for body in (
        "const f = () => f() + 1; return f()",
        f"return JSON.parse('{deep}')",
        "let a = []; for (let i = 0; i < 1e5; i++) a = [a]; return JSON.stringify(a).length",
        "return new RegExp('(' .repeat(5000) + ')'.repeat(5000)).test('a')",
        "let f = (x) => x; for (let i = 0; i < 2e4; i++) f = f.bind(null); return f(1)",
        "const o = {}; o.toString = () => `${o}`; return `${o}`",
    ):
        ending = run(engine, prepare(body), Limits())[0].ending
        assert (
            isinstance(ending, StackLimit | Value | CpuLimit | MemoryLimit) or type(ending).__name__ == "ScriptError"
        ), ending


def test_a_trusted_script_has_real_limits() -> None:
    assert isinstance(trusted(prepare("for (;;);"), gmail, FAST).outcome, CpuLimit)
    assert isinstance(trusted(prepare("const a = []; for (;;) a.push(new Array(1e4).fill(1))")).outcome, MemoryLimit)


def test_where_memory_cannot_be_cleared_every_invocation_has_a_new_instance(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on macOS and Windows."""
    body = "globalThis.n = (globalThis.n ?? 0) + 1; return [n, Date.now()]"
    expected = trusted(prepare(body)).outcome
    monkeypatch.setattr("keep_sandbox.wasm.CAN_CLEAR", False)
    monkeypatch.setattr("keep_sandbox.wasm.clear", lambda *_: pytest.fail("it was cleared"))
    engine = Engine(machine_code())
    endings = [run(engine, prepare(body))[0].ending for _ in range(3)]
    assert endings == [expected] * 3
    assert isinstance(run(engine, prepare("for (;;);"))[0].ending, CpuLimit)
    assert list(idle(engine)) == []
    assert engine.image_count == 2
