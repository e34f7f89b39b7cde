"""A worker that was taken over can do nothing: not to the machine, not to another workflow, not to the host."""

import platform
import random
import sys
import time
from pathlib import Path

import anyio
import pytest

from keep_actors.sandbox_pool import PoolPolicy, SandboxPool
from keep_sandbox import (
    Capabilities,
    CpuLimit,
    EngineCrash,
    Invocation,
    IssuedMutation,
    JailViolation,
    Limits,
    MemoryLimit,
    ProtocolViolation,
    Request,
    Value,
    WallLimit,
)
from tests.sandbox import compromised
from tests.sandbox.world import GMAIL, LOOP_DELAY_MAX_S, drive, invocation, needs_jail, prepare, run

pytestmark = [pytest.mark.anyio, needs_jail]

FORBIDDEN = {
    "open a file to read": "os.open('/etc/passwd', os.O_RDONLY)",
    "open a file to write": "os.open('/tmp/escaped', os.O_CREAT | os.O_WRONLY)",
    "open its own memory": "os.open('/proc/self/mem', os.O_RDWR)",
    "list a directory": "os.listdir('/')",
    "ask for a file": "os.stat('/etc/passwd')",
    "remove a file": "os.unlink('/tmp/escaped')",
    "change its directory": "os.chdir('/')",
    "make a socket": "socket.socket(socket.AF_INET, socket.SOCK_STREAM)",
    "make a local socket": "socket.socketpair()",
    "make a pipe": "os.pipe()",
    "duplicate a descriptor": "os.dup(3)",
    "receive a descriptor": "libc.recvmsg(3, None, 0)",
    "fork": "os.fork()",
    "start a thread": "threading.Thread(target=print).start()",
    "start a program": "os.execv('/bin/true', ['true'])",
    "start a child program": "subprocess.run(['/bin/true'])",
    "trace itself": "libc.ptrace(0, 0, 0, 0)",
    "trace its parent": "libc.ptrace(16, os.getpid() - 1, 0, 0)",
    "read another's memory": "libc.process_vm_readv(1, None, 0, None, 0, 0)",
    "signal another": "libc.kill(1, 9)",
    "signal another's thread": "libc.syscall({tgkill}, 1, 1, 9)",
    "become root": "os.setuid(0)",
    "map executable memory": "mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)",
    "make memory executable": "libc.mprotect(0, 4096, 7)",
    "raise its limits": "resource.setrlimit(resource.RLIMIT_DATA, (-1, -1))",
    "undo the filter": "libc.prctl(22, 0, 0, 0, 0)",
    "load a kernel program": "libc.syscall(321, 0, 0, 0)",
    "keep the death of its parent from it": "libc.prctl(1, 0, 0, 0, 0)",
    "wait on the machine's time": "time.sleep(0.01)",
}
TGKILL = {"x86_64": 234, "aarch64": 131}


@pytest.fixture
def taken_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on every worker is a compromised one."""
    monkeypatch.syspath_prepend(compromised.install(tmp_path))


def attack(code: str, capabilities: Capabilities = GMAIL) -> Invocation:
    return invocation(code, capabilities=capabilities)


@pytest.mark.usefixtures("taken_over")
async def test_a_compromised_worker_cannot_reach_the_machine() -> None:
    escaped: list[str] = []
    and_go_on = "\nexcept BaseException: pass\nsay(encode(protocol.EndedFrame(1, Value(value='1'))))"
    async with SandboxPool.open() as pool:
        for name, code in FORBIDDEN.items():
            escape = code.replace("{tgkill}", str(TGKILL[platform.machine()]))
            outcome = await run(pool, attack(f"try:\n    {escape}{and_go_on}"))
            if outcome != JailViolation():
                escaped.append(f"{name}: {outcome}")
    assert escaped == []


@pytest.mark.usefixtures("taken_over")
async def test_a_second_numbering_of_system_calls_is_no_way_out() -> None:
    async with SandboxPool.open() as pool:
        assert await run(pool, attack("libc.syscall(0x40000000 | 39)")) == JailViolation()


@pytest.mark.usefixtures("taken_over")
async def test_what_a_worker_does_to_itself_is_told_apart() -> None:
    endings = {
        "os.abort()": EngineCrash(signal=6),
        "ctypes.string_at(0)": EngineCrash(signal=11),
        "while True: pass": CpuLimit(hard=True),
        "x = []\nwhile True: x.append(bytearray(1 << 26))": MemoryLimit(),
        "os._exit(0)": EngineCrash(signal=0),
    }
    async with SandboxPool.open() as pool:
        for code, expected in endings.items():
            cpu_s = 0.1 if isinstance(expected, CpuLimit) else 20
            assert await run(pool, attack(f"signal.setitimer(signal.ITIMER_PROF, {cpu_s})\n{code}")) == expected


@pytest.mark.usefixtures("taken_over")
async def test_a_worker_that_disarms_its_own_clock_is_ended_by_the_hosts() -> None:
    code = "signal.setitimer(signal.ITIMER_PROF, 0)\nwhile True: pass"
    async with SandboxPool.open(limits=Limits(wall_ms=300)) as pool:
        assert await run(pool, attack(code)) == WallLimit()


@pytest.mark.usefixtures("taken_over")
async def test_a_worker_that_says_nothing_is_ended_by_the_clock() -> None:
    async with SandboxPool.open(limits=Limits(wall_ms=200)) as pool:
        assert await run(pool, attack("os.read(3, 1)")) == WallLimit()


@pytest.mark.usefixtures("taken_over")
async def test_the_hosts_own_time_does_not_count_as_the_guests() -> None:
    ask = "say(encode(protocol.RequestFrame(1, 1, Kind.READ, 'gmail.search', '{}')) + encode(protocol.Waits(1)))\n"
    end = "os.read(3, 9999)\nsay(encode(protocol.EndedFrame(1, Value(value='1'))))"
    async with SandboxPool.open(limits=Limits(wall_ms=150)) as pool, pool.invoke("w", attack(ask + end)) as call:
        request = await call.next()
        assert isinstance(request, Request)
        await anyio.sleep(0.2)  # a connector that takes longer than a guest may
        await call.answer(request.id, "1")
        assert await call.next() == Value(value="1")


SLOW_READER = """
for number in range(1, 11):
    say(encode(protocol.RequestFrame(1, number, Kind.READ, 'gmail.search', '{}')))
    until = time.monotonic() + 0.2
    while time.monotonic() < until:
        pass
    left = int.from_bytes(os.read(3, 4), 'big')
    while left:
        left -= len(os.read(3, left))
say(encode(protocol.EndedFrame(1, Value(value='1'))))
"""


@pytest.mark.usefixtures("taken_over")
async def test_a_worker_that_does_not_read_its_answers_uses_up_its_own_time() -> None:
    answers: list[int] = []

    def large(request: Request) -> str:
        answers.append(request.id)
        return f'"{"x" * 1_000_000}"'  # more than a socket holds

    async with SandboxPool.open(limits=Limits(wall_ms=300)) as pool:
        # Each answer waits for less than the limit; all of them together do not.
        assert await run(pool, attack(SLOW_READER), large) == WallLimit()
    assert 1 <= len(answers) <= 2


@pytest.mark.usefixtures("taken_over")
async def test_a_worker_that_never_reads_is_ended_however_many_answers_it_is_owed() -> None:
    code = (
        "[say(encode(protocol.RequestFrame(1, n, Kind.READ, 'gmail.search', '{}'))) for n in (1, 2, 3)]\n"
        "while True: pass"
    )
    async with SandboxPool.open(limits=Limits(wall_ms=300)) as pool, pool.invoke("w", attack(code)) as call:
        requests = [await call.next() for _ in range(3)]
        assert all(isinstance(each, Request) for each in requests)
        await call.answer(1, f'"{"x" * 1_000_000}"')
        # Two requests are still unanswered: the host has the word, and would have waited for ever.
        with anyio.fail_after(10):
            assert await call.next() == WallLimit()


FORGED = {
    "a length of zero": "say(bytes(4))",
    "a length beyond the limit": "say(b'\\xff\\xff\\xff\\xff')",
    "no frame at all": "say(b'\\x00\\x00\\x00\\x05hello')",
    "a frame nested deeply": "say((100000).to_bytes(4, 'big') + b'\\x91' * 100000)",
    "text that is not UTF-8": "say(b'\\x00\\x00\\x00\\x0b\\x93\\xa6Logged\\x01\\xa1\\xff')",
    "a frame of the host's": "say(encode(protocol.Abort(1)))",
    "a frame of the zygote's": "say(encode(protocol.StartedFrame(1)))",
    "a second greeting": "say(encode(protocol.Ready()))",
    "a wait for nothing": "say(encode(protocol.Waits(1)))",
    "a wait for another call": "say(encode(protocol.Waits(2)))",
    "a request after it waits": "say(encode(protocol.RequestFrame(1, 1, Kind.READ, 'gmail.search', '1'))"
    " + encode(protocol.Waits(1)) + encode(protocol.RequestFrame(1, 2, Kind.READ, 'gmail.search', '2')))",
    "an answer for another call": "say(encode(protocol.EndedFrame(2, Value(value='1'))))",
    "a value that is not JSON": "say(encode(protocol.EndedFrame(1, Value(value='{'))))",
    "a value with half a character": "say(encode(protocol.EndedFrame(1, Value(value='\"\\\\ud800\"'))))",
    "a number that nobody can hold": "say(encode(protocol.EndedFrame(1, Value(value='[1e400]'))))",
    "a request with such a number": "say(encode(protocol.RequestFrame(1, 1, Kind.READ, 'gmail.search', '1E+999')))",
    "an integer that is too long": "say(encode(protocol.EndedFrame(1, Value(value='1' * 5000))))",
    "a value that is too deep": "say(encode(protocol.EndedFrame(1, Value(value='['*100 + ']'*100))))",
    "a value that is far too deep": "say(encode(protocol.EndedFrame(1, Value(value='['*100000))))",
    "a value that is too large": "say(encode(protocol.EndedFrame(1, Value(value='\"' + 'x'*2000000 + '\"'))))",
    "a request out of order": "say(encode(protocol.RequestFrame(1, 2, Kind.READ, 'gmail.search', '{}')))",
    "a request played again": "say(encode(protocol.RequestFrame(1, 1, Kind.READ, 'gmail.search', '{}')) * 2)",
    "a mutation that says it reads": "say(encode(protocol.RequestFrame(1, 1, Kind.READ, 'gmail.send', '{}')))",
    "a read that says it mutates": "say(encode(protocol.RequestFrame(1, 1, Kind.MUTATION, 'gmail.search', '{}')))",
    "a method that was not offered": "say(encode(protocol.RequestFrame(1, 1, Kind.MUTATION, 'bank.pay', '{}')))",
    "a topic call that was not offered": "say(encode(protocol.RequestFrame(1, 1, Kind.PUBLISH, 'publish', '{}')))",
    "too much log": "say(encode(protocol.Logged(1, 'x')) * 201)",
    "a log line that is too long": "say(encode(protocol.Logged(1, 'x' * 2001)))",
    "too many requests": (
        "[say(encode(protocol.RequestFrame(1, i, Kind.READ, 'gmail.search', '1'))) for i in range(1, 102)]"
    ),
    "an outcome that is the host's to see": "say(encode(protocol.EndedFrame(1, outcomes.WorkerLost())))",
    "an error that is too long": "say(encode(protocol.EndedFrame(1, outcomes.ScriptError("
    "phase='run', name='E', message='x' * 100_000))))",
    "a place that no script has": "say(encode(protocol.EndedFrame(1, outcomes.CpuLimit("
    "place=outcomes.Place(99999, 1)))))",
    "more bytes than an invocation has": "[say(encode(protocol.Logged(1, 'x'))) for _ in iter(int, 1)]",
}


@pytest.mark.usefixtures("taken_over")
async def test_a_worker_that_forges_frames_is_killed_and_reported() -> None:
    missed: list[str] = []
    async with SandboxPool.open() as pool:
        for name, code in FORGED.items():
            async with pool.invoke("w", attack(code + "\nos.read(3, 1)")) as call:
                outcome = await drive(call)
                while isinstance(outcome, Request):
                    outcome = await call.next()
            if not isinstance(outcome, ProtocolViolation):
                missed.append(f"{name}: {outcome}")
        assert pool.stats.kept == 0
    assert missed == []


LARGE_VALUES = [
    "'[' + ','.join(['[]'] * 340000) + ']'",
    "'[' + ','.join(['{\"\":{}}'] * 125000) + ']'",
    "'[' + ','.join(['[' * 60 + ']' * 60] * 8500) + ']'",
    "'[' + ','.join(['\"[]\"'] * 190000) + ']'",
    "'[' * 500000 + ']' * 500000",
    "'\"' + 'x' * 1000000 + '\"'",
]


@pytest.mark.usefixtures("taken_over")
async def test_the_costliest_values_that_a_worker_can_send_do_not_delay_the_event_loop() -> None:
    async with SandboxPool.open() as pool:
        for value in LARGE_VALUES:
            # What the loop's own thread computes, which is what it keeps others from; a busy machine adds to the rest.
            before = time.thread_time()
            outcome = await run(pool, attack(f"say(encode(protocol.EndedFrame(frame.call, Value(value={value}))))"))
            assert time.thread_time() - before < LOOP_DELAY_MAX_S
            assert isinstance(outcome, Value | ProtocolViolation)


@pytest.mark.usefixtures("taken_over")
async def test_random_bytes_from_a_worker_never_trouble_the_host() -> None:
    seed = random.SystemRandom().randrange(2**32)
    numbers = random.Random(seed)
    async with SandboxPool.open(limits=Limits(wall_ms=2_000)) as pool:
        for _ in range(40):
            data = numbers.randbytes(numbers.choice([1, 4, 5, 20, 200, 70_000]))
            if numbers.random() < 0.7:
                data = len(data).to_bytes(4, "big") + data
            outcome = await run(pool, attack(f"say({data!r})\nos._exit(0)"))
            assert isinstance(outcome, ProtocolViolation | EngineCrash), f"seed {seed}"


@pytest.mark.usefixtures("taken_over")
async def test_nothing_that_a_worker_says_after_its_mutation_counts() -> None:
    code = (
        "if frame.args == '[2]':\n"
        "    say(encode(protocol.EndedFrame(frame.call, Value(value=str(os.getpid())))))\n"
        "else:\n"
        "    say(encode(protocol.RequestFrame(1, 1, Kind.MUTATION, 'gmail.send', str(os.getpid()))))\n"
        "    say(encode(protocol.RequestFrame(1, 2, Kind.MUTATION, 'gmail.send', '{\"to\":2}')))\n"
        "    say(encode(protocol.Logged(1, 'AFTER')))\n"
        "    say(encode(protocol.EndedFrame(1, Value(value='1'))))\n"
    )
    async with SandboxPool.open() as pool:
        async with pool.invoke("w", invocation(code, args="[1]")) as call:
            mutation = await drive(call)
        assert isinstance(mutation, IssuedMutation)
        assert call.logs == []
        # What it said beside is the end of it, and not the fault of the next.
        outcome = await run(pool, invocation(code, args="[2]"))
        assert isinstance(outcome, Value)
        assert outcome.value != mutation.params


STAYS = """
def obey(frame):
    say(encode(protocol.RequestFrame(frame.call, 1, Kind.MUTATION, 'bank.pay', '{"to":"attacker"}')))
worker._receive = obey
say(encode(protocol.EndedFrame(frame.call, Value(value='1'))))
"""
HONEST = "say(encode(protocol.EndedFrame(frame.call, Value(value='2'))))"
ALONE = PoolPolicy(sharing="none")
BANK = Capabilities(connectors={"bank": {"pay": "mutation"}})


@pytest.mark.usefixtures("taken_over")
async def test_a_worker_that_a_script_took_over_does_not_meet_the_next_script_if_nothing_is_shared() -> None:
    async with SandboxPool.open(policy=ALONE) as pool:
        assert await run(pool, attack(STAYS)) == Value(value="1")
        assert await run(pool, attack(HONEST, BANK)) == Value(value="2")


@pytest.mark.usefixtures("taken_over")
async def test_a_worker_is_gone_when_another_version_runs_even_if_the_script_is_the_same() -> None:
    once = f"if frame.args == '[1]':{STAYS}".replace("\n", "\n    ") + f"\nelse:\n    {HONEST}"
    async with SandboxPool.open(policy=ALONE) as pool:
        assert await run(pool, invocation(once, args="[1]")) == Value(value="1")
        pool.drop_workers("w")
        assert await run(pool, invocation(once, args="[2]", capabilities=BANK)) == Value(value="2")


@pytest.mark.skipif(sys.platform != "linux", reason="reads a process's memory as Linux shows it")
async def test_no_process_holds_the_data_of_another_workflow() -> None:
    secret = "mellifluous-quagga-" * 3
    async with SandboxPool.open(policy=ALONE) as pool:
        async with pool.invoke("a", prepare("return ev.secret.length", args=f'[{{"secret":"{secret}"}}]')) as call:
            await drive(call)
            own = call.worker.pid if hasattr(call, "worker") else None
        assert await run(pool, prepare("return 1"), workflow_id="b") == Value(value="1")
        assert own is not None
        others = [pid for pid in pool.stats.worker_pids if pid != own]
        assert pool.stats.zygote_pid is not None
        others.append(pool.stats.zygote_pid)
        try:
            assert len(others) >= 2
            assert not any(_memory_contains(pid, secret.encode()) for pid in others)
        except PermissionError:
            pytest.skip("only root may read the memory of a process that cannot be traced")


def _memory_contains(pid: int, wanted: bytes) -> bool:
    with Path(f"/proc/{pid}/maps").open() as maps, Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
        for line in maps:
            span, rights = line.split()[:2]
            if "r" not in rights or "[v" in line:
                continue
            start, end = (int(part, 16) for part in span.split("-"))
            memory.seek(start)
            try:
                if wanted in memory.read(end - start):
                    return True
            except OSError:
                continue
    return False


@pytest.mark.skipif(sys.platform != "linux", reason="reads descriptors as Linux shows them")
async def test_a_worker_has_one_descriptor_that_leads_anywhere() -> None:
    async with SandboxPool.open() as pool:
        await run(pool, prepare("return 1"))
        await pool.wait_for_spares()
        for pid in pool.stats.worker_pids:
            opened, status = _descriptors_and_status(pid)
            assert opened.pop("3").startswith("socket:")
            assert set(opened.values()) == {"/dev/null"}
            assert "NoNewPrivs:\t1" in status
            assert "Seccomp:\t2" in status
            assert "CapEff:\t0000000000000000" in status
            assert "Uid:\t0" not in status


def _descriptors_and_status(pid: int) -> tuple[dict[str, str], str]:
    try:
        opened = {entry.name: entry.readlink().as_posix() for entry in Path(f"/proc/{pid}/fd").iterdir()}
    except PermissionError:
        pytest.skip("only root may look into a process that cannot be traced")
    return opened, Path(f"/proc/{pid}/status").read_text()
