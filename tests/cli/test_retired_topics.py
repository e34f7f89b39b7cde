"""A script that renames or drops a topic in which events wait: `--drop`, `--move OLD=NEW`, and the question."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.cli.operating import Shell, script
from tests.cli.terminal_session import terminal


class Renaming(Shell):
    """Paused workflows with two orders in their topic `orders`, and scripts for them that read `parcels` instead."""

    workflows = 0

    def waiting(self) -> str:
        self.workflows += 1
        name = f"shop{self.workflows}"
        self.keep("deploy", self.write(name), "--accept")
        self.keep("pause", name)
        for order in ("o1", "o2"):
            self.keep("publish", name, "orders", order, "--payload", f'"{name}-{order}"')
        return name

    def renamed(self, name: str) -> str:
        file = f"{name}-renamed.js"
        text = script(name).replace('"orders"', '"parcels"').replace("orders: {}", "parcels: {}, returns: {}")
        (self.folder / file).write_text(text, "utf-8")
        return file

    def places(self, name: str) -> dict[str, tuple[str, str]]:
        """The topic and the state of each event."""
        return {each["message_id"]: (each["topic"], each["status"]) for each in self.objects("inputs", name)}

    def activated(self, name: str) -> dict[str, Any]:
        """What the journal says of the newest script."""
        entries = [each for each in self.objects("log", name) if each["operation"] == "activate_script"]
        changed: dict[str, Any] = entries[-1]["changed"]
        return changed


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Renaming]:
    renaming = Renaming(tmp_path_factory.mktemp("shop"))
    with renaming.running(renaming.write("first")) as process:
        yield renaming
        renaming.end(process)


PENDING = {"o1": ("orders", "pending"), "o2": ("orders", "pending")}
MOVED = {"o1": ("parcels", "pending"), "o2": ("parcels", "pending")}
DROPPED = {"o1": ("orders", "skipped"), "o2": ("orders", "skipped")}


def test_without_a_terminal_a_deploy_that_leaves_events_behind_names_the_options(shell: Renaming) -> None:
    name = shell.waiting()
    said = shell.refused("deploy", shell.renamed(name), "--workflow", name, "--accept", code=1)
    assert "'orders' (2 waiting)" in said
    assert "--drop TOPIC" in said
    assert "--move OLD=NEW" in said
    assert shell.places(name) == PENDING


def test_the_events_of_a_renamed_topic_are_moved(shell: Renaming) -> None:
    name = shell.waiting()
    shell.keep("deploy", shell.renamed(name), "--workflow", name, "--accept", "--move", "orders=parcels")
    assert shell.places(name) == MOVED
    said = shell.activated(name)
    assert (said["moved"], said["by"]) == ({"orders": {"to": "parcels", "events": 2, "skipped": 0}}, "olga")
    assert "moved orders to parcels events 2 skipped 0, by olga" in shell.keep("log", name)


def test_the_events_of_a_dropped_topic_are_skipped(shell: Renaming) -> None:
    name = shell.waiting()
    shell.keep("deploy", shell.renamed(name), "--workflow", name, "--accept", "--drop", "orders")
    assert shell.places(name) == DROPPED
    assert shell.activated(name)["dropped"] == {"orders": 2}


def test_a_rollback_takes_the_same_options(shell: Renaming) -> None:
    name = shell.waiting()
    shell.keep("deploy", shell.renamed(name), "--workflow", name, "--accept", "--move", "orders=parcels")
    assert "--move OLD=NEW" in shell.refused("rollback", name, "1.0", code=1)
    assert shell.places(name) == MOVED
    shell.keep("rollback", name, "1.0", "--move", "parcels=orders")
    assert shell.places(name) == PENDING


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--move", "orders"), "'orders' is not OLD=NEW"),
        (("--move", "=parcels"), "'=parcels' is not OLD=NEW"),
        (("--move", "orders=parcels", "--move", "orders=returns"), "cannot go to two topics"),
    ],
)
def test_a_move_names_two_topics(shell: Renaming, words: tuple[str, ...], said: str) -> None:
    file = shell.write("first")
    assert said in shell.refused("deploy", file, *words, code=2)


def test_topics_are_dropped_for_one_script_at_a_time(shell: Renaming) -> None:
    files = (shell.write("first"), shell.write("second"))
    assert "deploy that script alone" in shell.refused("deploy", *files, "--drop", "orders", code=2)
    assert "deploy that script alone" in shell.refused("run", *files, "--drop", "orders", code=2)


def test_who_runs_a_renamed_script_says_what_becomes_of_the_events(tmp_path_factory: pytest.TempPathFactory) -> None:
    shell = Renaming(tmp_path_factory.mktemp("run"))
    with shell.running(shell.write("first")) as process:
        name = shell.waiting()
        shell.end(process)
    run = ("run", shell.renamed(name), "--workflow", name, "--connectors", "shop:Shop", "--accept", "--once")
    said = shell.refused(*run, code=1)
    assert "'orders' (2 waiting)" in said
    assert "--move OLD=NEW" in said
    shell.keep(*run, "--move", "orders=parcels")
    assert shell.places(name) == MOVED


@pytest.mark.parametrize(
    ("answer", "code", "places"),
    [("1", 0, MOVED), ("3", 0, DROPPED), ("4", 1, PENDING)],
    ids=["move", "drop", "stop"],
)
def test_on_a_terminal_a_person_is_asked_topic_by_topic(
    shell: Renaming, answer: str, code: int, places: dict[str, tuple[str, str]]
) -> None:
    name = shell.waiting()
    with terminal(shell.folder, KEEP_DB="keep.db") as window:
        window.tmux("send-keys", "-l", f"keep deploy {shell.renamed(name)} --workflow {name} --accept; echo ENDED:$?.")
        window.tmux("send-keys", "Enter")
        window.wait_for(r"^Which \(1 to 4\):")
        seen = window.screen()
        assert "orders: the script no longer declares this topic, and 2 events wait in it." in seen
        offered = [line.strip() for line in seen.splitlines() if line.startswith("  ")]
        assert offered == [
            "1  move them to parcels",
            "2  move them to returns",
            "3  drop them: they are skipped",
            "4  stop: nothing changes",
        ]
        window.tmux("send-keys", answer, "Enter")
        assert window.wait_for(r"^ENDED:(\d)\.$").group(1) == str(code)
    assert shell.places(name) == places
