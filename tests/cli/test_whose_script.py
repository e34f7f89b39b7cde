"""Which workflow a file is for: a person types its name, the file does not say it. `keep deploy` and `keep run`."""

from collections.abc import Iterator

import pytest

from tests.cli.operating import Shell, script


class Open(Shell):
    """A shop whose runtime runs, and scripts of strangers for it."""

    def theirs(self, name: str) -> str:
        """A file with the name of a workflow, and other words."""
        file = f"{name}-theirs.js"
        (self.folder / file).write_text(f"{script(name)}\n// theirs", "utf-8")
        return file

    def version(self, name: str) -> str:
        [detail] = self.objects("status", name)
        return str(detail["version"])


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Open]:
    opened = Open(tmp_path_factory.mktemp("shop"))
    with opened.running(opened.write("first")) as process:
        yield opened
        opened.end(process)


def test_a_file_with_the_name_of_a_workflow_does_not_replace_it(shell: Open) -> None:
    shell.keep("deploy", shell.write("ours"), "--accept")
    for words in ((), ("--accept",), ("--major",), ("--new",), ("--new", "--workflow", "ours")):
        said = shell.refused("deploy", shell.theirs("ours"), *words, code=1)
        assert "the workflow 'ours' (" in said
        assert "[name-taken]" in said
    assert "`--workflow`" in shell.refused("deploy", shell.theirs("ours"), code=1)
    assert shell.version("ours") == "1.0"
    shell.keep("deploy", shell.write("ours"))
    assert shell.version("ours") == "1.0", "the script that runs is no replacement"
    shell.keep("deploy", shell.theirs("ours"), "--workflow", "ours")
    assert shell.version("ours") == "1.1"


def test_a_file_by_another_author_is_a_new_major_version_and_has_to_be_granted_everything(shell: Open) -> None:
    shell.keep("deploy", shell.write("hers"), "--accept", "--author", "ann", "--new")
    meant = ("deploy", shell.theirs("hers"), "--workflow", "hers", "--author", "mallory")
    said = shell.refused(*meant, code=1)
    assert "shop.ship (risk" in said
    assert "Version 1.0 is by 'ann', this is by 'mallory': grants are not carried over." in said
    assert "Accept them all with --accept" in said
    shell.keep(*meant, "--ask", "shop.ship")
    assert shell.version("hers") == "2.0"


def test_the_owner_of_a_workflow_is_named_once_and_shown(shell: Open) -> None:
    shell.keep("deploy", shell.write("rented"), "--accept", "--owner", "ann")
    shell.keep("deploy", shell.theirs("rented"), "--workflow", "rented")
    assert ("owner", "ann") in [tuple(line.split()) for line in shell.keep("status", "rented").splitlines()]
    listed = {each["name"]: each["owner"] for each in shell.objects("status")}
    assert (listed["rented"], listed["first"]) == ("ann", "")
    [heading, *rows] = shell.keep("status").splitlines()
    assert heading.split()[:3] == ["WORKFLOW", "OWNER", "STATE"]
    assert ["rented", "ann"] in [row.split()[:2] for row in rows]
    assert ["first", "-"] in [row.split()[:2] for row in rows]
    assert "and another owner" in shell.refused("deploy", shell.theirs("rented"), "--owner", "bob", code=1)
    assert "the owner 'a\\u202eb' has an invisible character" in shell.refused(
        "deploy", shell.theirs("rented"), "--workflow", "rented", "--owner", "a\u202eb", code=1
    )
    shell.keep("deploy", shell.theirs("rented"), "--workflow", "rented", "--owner", "bob")
    assert [each["owner"] for each in shell.objects("status") if each["name"] == "rented"] == ["bob"]


def test_a_file_without_owners_is_shown_without_them_and_keep_run_names_them(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    shell = Open(tmp_path_factory.mktemp("owners"))
    options = ("--connectors", "shop:Shop", "--once", "--accept")
    shell.keep("run", shell.write("one"), *options)
    assert "OWNER" not in shell.keep("status")
    assert "owner" not in shell.keep("status", "one")
    shell.keep("run", shell.write("one"), shell.write("two"), "--owner", "ann", "--workflow", "one", *options)
    assert {each["owner"] for each in shell.objects("status")} == {"ann"}
    for option in ("--owner", "--author"):
        said = shell.refused("run", shell.write("one"), option, "a\u202eb", *options, code=2)
        assert "'a\\u202eb' has an invisible character" in said


def test_a_workflow_that_is_named_is_there(shell: Open) -> None:
    assert "There is no workflow 'nobody'" in shell.refused(
        "deploy", shell.write("nobody"), "--workflow", "nobody", code=1
    )
    assert "the script is named 'nobody', but is deployed as workflow 'first'" in shell.refused(
        "deploy", shell.write("nobody"), "--workflow", "first", code=1
    )


def test_who_runs_a_changed_file_says_whose_script_it_replaces(tmp_path_factory: pytest.TempPathFactory) -> None:
    shell = Open(tmp_path_factory.mktemp("run"))
    options = ("--connectors", "shop:Shop", "--once")
    shell.keep("run", shell.write("one"), shell.write("two"), *options, "--accept")
    shell.keep("run", shell.write("one"), shell.write("two"), *options)
    changed = ("run", shell.theirs("one"), shell.theirs("two"), shell.write("three"), *options, "--accept")
    for words in ((), ("--workflow", "two"), ("--workflow", "nobody")):
        said = shell.refused(*changed, *words, code=1)
        assert "one-theirs.js: the script has 1 problem " in said
        assert "the workflow 'one' (" in said
        assert "`--workflow`" in said
    assert [shell.version(each) for each in ("one", "two")] == ["1.0", "1.0"]
    shell.keep(*changed, "--workflow", "one", "--workflow", "two")
    assert [shell.version(each) for each in ("one", "two", "three")] == ["1.1", "1.1", "1.0"]
