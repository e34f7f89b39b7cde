"""The compiled engine: a cache of machine code that is used only if it is ours and whole."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from keep_sandbox import compiled
from keep_sandbox.engine import Engine


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The file of an empty cache. The code that this process knows already is forgotten for the test."""
    folder = tmp_path / "a" / "cache"
    monkeypatch.setenv(compiled.CACHE_VARIABLE, str(folder))
    known = compiled.machine_code()
    monkeypatch.setattr(compiled, "_made_elsewhere", Maker(known))
    compiled.machine_code.cache_clear()
    for each in folder.glob("*"):
        each.unlink()
    yield folder / compiled.cache_name(compiled.engine_wasm())
    compiled.machine_code.cache_clear()


class Maker:
    """Counts how often the engine is compiled. It takes seconds, so that only one test does it."""

    def __init__(self, code: bytes) -> None:
        self.code = code
        self.times = 0

    def __call__(self) -> bytes:
        self.times += 1
        return self.code


def again() -> bytes:
    compiled.machine_code.cache_clear()
    return compiled.machine_code()


def times_made() -> int:
    maker = compiled._made_elsewhere
    assert isinstance(maker, Maker)
    return maker.times


def test_the_engine_is_compiled_by_another_process_and_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(compiled.CACHE_VARIABLE, str(tmp_path))
    compiled.machine_code.cache_clear()
    code = compiled.machine_code()
    assert Engine(code).image_count == 0
    assert [each.name for each in tmp_path.iterdir()] == [compiled.cache_name(compiled.engine_wasm())]
    compiled.machine_code.cache_clear()


def test_it_is_compiled_once_and_kept_for_this_user_alone(place: Path) -> None:
    first = again()
    assert stat.S_IMODE(place.stat().st_mode) == 0o600
    assert stat.S_IMODE(place.parent.stat().st_mode) == 0o700
    assert again() == first
    assert times_made() == 1


@pytest.mark.parametrize("cut", [0, 10, 32, 1_000_000])
def test_a_file_that_is_cut_off_is_made_again(place: Path, cut: int) -> None:
    first = again()
    place.write_bytes(place.read_bytes()[:cut])
    assert again() == first
    assert again() == first
    assert times_made() == 2


def test_a_file_with_one_wrong_bit_is_never_loaded(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    again()
    data = bytearray(place.read_bytes())
    data[len(data) // 2] ^= 1
    place.write_bytes(data)
    monkeypatch.setattr("keep_sandbox.wasm.is_loadable", lambda _: pytest.fail("it was loaded"))
    again()
    assert times_made() == 2


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o666])
def test_a_file_that_others_may_touch_is_made_again(place: Path, mode: int) -> None:
    again()
    place.chmod(mode)
    again()
    assert times_made() == 2
    assert stat.S_IMODE(place.stat().st_mode) == 0o600


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can give a file away")
def test_the_file_of_another_user_is_made_again(place: Path) -> None:
    again()
    os.chown(place, 65534, 65534)
    again()
    assert times_made() == 2
    assert place.stat().st_uid == os.geteuid()


def test_a_link_is_not_followed_and_a_second_name_not_trusted(place: Path, tmp_path: Path) -> None:
    again()
    elsewhere = tmp_path / "elsewhere"
    place.rename(elsewhere)
    place.symlink_to(elsewhere)
    again()
    assert times_made() == 2
    assert not place.is_symlink()
    os.link(place, tmp_path / "second")
    again()
    assert times_made() == 3


def test_a_folder_or_a_pipe_in_its_place_is_no_reason_to_stop(place: Path) -> None:
    place.mkdir(parents=True)
    first = again()
    place.rmdir()
    os.mkfifo(place)
    assert again() == first
    assert times_made() == 2


def test_machine_code_that_does_not_load_here_is_made_again(place: Path) -> None:
    """Whole and ours, but of another machine, as in a home that several machines share."""
    good = again()
    compiled._write(place, good[:64] + bytes(64) + good[128:])
    assert again() == good
    assert times_made() == 2


def test_without_a_place_to_keep_it_the_engine_is_compiled_each_time(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(compiled.CACHE_VARIABLE, str(tmp_path / "file" / "cache"))
    assert again() == again()
    assert times_made() == 2


def test_an_engine_that_does_not_compile_says_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(compiled.CACHE_VARIABLE, str(tmp_path))
    monkeypatch.setattr("sys.executable", "/bin/false")
    compiled.machine_code.cache_clear()
    with pytest.raises(compiled.EngineNotCompiled, match=r"could not be compiled \(exit code 1\)"):
        compiled.machine_code()


def test_the_name_in_the_cache_changes_with_all_that_decides_the_code(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {compiled.cache_name(b"one"), compiled.cache_name(b"two")}
    monkeypatch.setattr("keep_sandbox.wasm.WASMTIME_VERSION", "50.0.2")
    names.add(compiled.cache_name(b"one"))
    monkeypatch.setattr("keep_sandbox.wasm.SETTINGS", "others")
    names.add(compiled.cache_name(b"one"))
    monkeypatch.setattr("platform.machine", lambda: "another")
    names.add(compiled.cache_name(b"one"))
    assert len(names) == 5
