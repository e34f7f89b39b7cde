"""Installations that the sandbox refuses, and modes that must be chosen by name."""

import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from keep_actors.sandbox_pool import SandboxPool, SandboxUnavailable
from keep_actors.sandbox_pool.pool import PoolMode
from keep_sandbox import DecoderUnsuitable, EngineUnsuitable, IssuedMutation, JailUnavailable, Limits, Value, compiled
from keep_sandbox import jail as jail_module
from keep_sandbox.compiled import EngineNotCompiled
from keep_sandbox.seccomp import program
from keep_sandbox.wasm import check_installation
from tests.sandbox.world import needs_jail, prepare, run


def pretend_installed(directory: Path, name: str, version: str) -> str:
    metadata = directory / f"{name.replace('-', '_')}-{version}.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    return str(directory)


def test_the_installed_wasmtime_is_one_that_was_tested() -> None:
    check_installation()


@pytest.mark.anyio
async def test_another_version_of_wasmtime_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(pretend_installed(tmp_path, "wasmtime", "99.0.1"))
    with pytest.raises(EngineUnsuitable, match=r"wasmtime 50 is needed, found 99\.0\.1"):
        check_installation()
    with pytest.raises(EngineUnsuitable):
        async with SandboxPool.open(mode="thread"):
            pass


@pytest.mark.anyio
@pytest.mark.parametrize("mode", ["jailed", "wasm", "thread"])
async def test_an_engine_that_does_not_compile_is_told_when_the_pool_opens(
    mode: PoolMode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails() -> bytes:
        raise EngineNotCompiled("no compiler for this machine")

    monkeypatch.setenv(compiled.CACHE_VARIABLE, str(tmp_path))
    monkeypatch.setattr(compiled, "_made_elsewhere", fails)
    compiled.machine_code.cache_clear()
    with pytest.raises(SandboxUnavailable, match="no compiler for this machine"):
        async with SandboxPool.open(mode=mode):
            pass


@pytest.mark.anyio
async def test_a_decoder_that_does_not_check_what_it_keeps_raw_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    checked = msgspec.json.decode

    def lazy(data: bytes, *, type: Any = Any) -> Any:  # noqa: A002  # as msgspec calls it
        return msgspec.Raw(data) if type is msgspec.Raw else checked(data, type=type)

    monkeypatch.setattr(msgspec.json, "decode", lazy)
    with pytest.raises(DecoderUnsuitable, match=r"msgspec .* takes '' for JSON"):
        async with SandboxPool.open(mode="thread"):
            pass


def test_without_a_jail_the_weaker_mode_is_had_by_name_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("keep_sandbox.seccomp.is_supported", lambda: False)
    with pytest.raises(JailUnavailable, match="wasm"):
        jail_module.check_available("jailed")
    jail_module.check_available("wasm")


@pytest.mark.anyio
async def test_the_mode_that_was_called_weak_is_refused_with_its_new_name() -> None:
    with pytest.raises(ValueError, match='called "wasm" now'):
        async with SandboxPool.open(mode="weak"):  # type: ignore[arg-type]
            pass
    with pytest.raises(ValueError, match="not 'strong'"):
        async with SandboxPool.open(mode="strong"):  # type: ignore[arg-type]
            pass


@pytest.mark.anyio
async def test_the_mode_without_a_jail_keeps_its_limits() -> None:
    async with SandboxPool.open(mode="wasm", limits=Limits(fuel=400_000_000, cpu_hard_ms=500)) as pool:
        assert await run(pool, prepare("return (await ctx.gmail.search({})).length")) == Value(value="2")
        assert isinstance(await run(pool, prepare("ctx.gmail.send({}); for(;;);")), IssuedMutation)
        for body in ("for(;;);", "new Array(2**32-1).join()"):
            assert type(await run(pool, prepare(body))).__name__ == "CpuLimit"
        assert await run(pool, prepare("return 1")) == Value(value="1")


def decide(code: bytes, arch: int, number: int, arguments: tuple[int, int, int] = (0, 0, 0)) -> str:
    """The kernel's verdict: a small part of its interpreter, enough for our filter."""
    words = {0: number, 4: arch, **{16 + 8 * at: value for at, value in enumerate(arguments)}}
    lines = [code[at : at + 8] for at in range(0, len(code), 8)]
    at, accumulator = 0, 0
    while True:
        line = lines[at]
        operation, then, otherwise = int.from_bytes(line[:2], sys.byteorder), line[2], line[3]
        k = int.from_bytes(line[4:], sys.byteorder)
        at += 1
        if operation == 0x20:
            accumulator = words[k]
        elif operation == 0x06:
            return {0x80000000: "kill", 0x7FFF0000: "allow"}[k]
        else:
            holds = {0x15: accumulator == k, 0x35: accumulator >= k, 0x45: bool(accumulator & k)}[operation]
            at += then if holds else otherwise


@pytest.mark.parametrize(
    ("machine", "arch", "read", "mmap", "tgkill", "openat", "execve", "socket"),
    [("x86_64", 0xC000003E, 0, 9, 234, 257, 59, 41), ("aarch64", 0xC00000B7, 63, 222, 131, 56, 221, 198)],
)
def test_the_filter_says_the_same_on_both_machines(
    machine: str, arch: int, read: int, mmap: int, tgkill: int, openat: int, execve: int, socket: int
) -> None:
    code = program(machine, pid=4242)
    assert decide(code, arch, read) == "allow"
    assert decide(code, arch, mmap, (0, 4096, 3)) == "allow"
    assert decide(code, arch, mmap, (0, 4096, 7)) == "kill"
    assert decide(code, arch, tgkill, (4242, 4242, 6)) == "allow"
    assert decide(code, arch, tgkill, (1, 1, 9)) == "kill"
    assert decide(code, 0x40000003, read) == "kill"
    assert decide(code, arch, 0x40000000 | read) == "kill"
    for number in (openat, execve, socket, 100_000):
        assert decide(code, arch, number) == "kill"
    allowed = [number for number in range(512) if decide(code, arch, number, (4242, 0, 0)) == "allow"]
    assert len(allowed) == 22


@needs_jail
@pytest.mark.anyio
async def test_a_machine_on_which_no_worker_starts_is_told_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text("import keep_sandbox.seccomp as s\ns.install = lambda *a: 1 / 0\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(SandboxUnavailable, match="jail"):
        async with SandboxPool.open():
            pass
