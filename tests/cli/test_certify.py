"""`keep certify`: a table for people, lines for programs, a badge, and words for every name that is wrong."""

import json
import subprocess
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from keep_actors.testing.certification import CertificationRow
from tests.cli.operating import KEEP
from tests.cli.terminal_session import need_tmux, terminal

ROOT = Path(__file__).parents[2]
RIGHT = "tests.testing.certification.till:TillCertification"
NAIVE = "tests.testing.certification.naive"
SUBJECTS = "tests.testing.certification.naive_subjects"
SOME = ("--only", "plain", "--only", "lost-answer", "--only", "killed-noted")


def certify(*arguments: str, folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run([KEEP, "certify", *arguments], cwd=folder, capture_output=True, text=True, check=False)


def test_what_held_is_a_table_with_counts() -> None:
    done = certify(RIGHT, *SOME)
    assert done.returncode == 0, done.stderr
    head, *lines = done.stdout.splitlines()
    assert head.split() == ["METHOD", "ROW", "OUTCOME", "TOOK", "SEEN"]
    assert [line.split()[:2] for line in lines[:3]] == [
        ["till.add", "plain"],
        ["till.add", "lost-answer"],
        ["till.add", "killed-noted"],
    ]
    assert lines[-1].startswith("till: 2 held, 0 failed, 1 does not apply; it took ")
    assert done.stderr == "", "progress is for terminals, and errors of connectors are in the table"


def test_a_row_that_failed_is_explained_and_the_exit_code_is_1() -> None:
    done = certify(f"{NAIVE}:HalfIsARefusalCertification", "--only", "half-answer")
    assert done.returncode == 1
    *_, failed, tried, seen, why, _, counts = done.stdout.splitlines()
    assert failed == "till.add: half-answer failed"
    assert tried == "  tried  the request arrives, and the connection breaks in the middle of its answer"
    assert seen.startswith("  seen   it says that nothing happened: the till says b'OK")
    assert why.endswith("An answer that cannot be read is no refusal: raise `Uncertain`.")
    assert counts.startswith("till: 0 held, 1 failed, 0 do not apply")


def test_json_has_one_object_for_each_row() -> None:
    done = certify(f"{NAIVE}:TransientAlwaysCertification", "--json", *SOME)
    assert done.returncode == 1
    rows = {line["row"]: line for line in map(json.loads, done.stdout.splitlines())}
    assert {name: row["outcome"] for name, row in rows.items()} == {
        "plain": "held",
        "lost-answer": "failed",
        "killed-noted": "does not apply",
    }
    assert all(row["method"] == "till.add" and row["took_ms"] >= 0 for row in rows.values())
    assert rows["lost-answer"]["mishap"] == "the request arrives, and its answer is lost"
    assert "there is an effect (1)" in rows["lost-answer"]["seen"]
    assert "unknown" in rows["lost-answer"]["why"]


@pytest.mark.parametrize(
    ("subject", "only", "title", "words"),
    [
        (RIGHT, "plain", "keep till: 1 held, 0 failed, 0 do not apply", "certified: 1 of 1"),
        (f"{SUBJECTS}:ForgetsCertification", "plain", "keep till: 0 held, 1 failed, 0 do not apply", "1 failed"),
        (f"{NAIVE}:AsksCertification", "found", "keep till: 0 held, 0 failed, 1 does not apply", "nothing was tried"),
    ],
)
def test_a_badge_says_what_held(subject: str, only: str, title: str, words: str, tmp_path: Path) -> None:
    certify(subject, "--only", only, "--badge", str(tmp_path / "till.svg"))
    svg = ET.fromstring((tmp_path / "till.svg").read_text("utf-8"))
    assert svg.get("aria-label") == title
    assert [each.text for each in svg.iter("{http://www.w3.org/2000/svg}text")] == ["keep till", words]


def test_a_badge_that_cannot_be_written_is_said_and_the_table_was_not_in_vain(tmp_path: Path) -> None:
    done = certify(RIGHT, "--only", "plain", "--badge", str(tmp_path / "none" / "till.svg"))
    assert done.returncode == 1
    assert "till.svg cannot be written: No such file or directory." in done.stderr
    assert "till: 1 held" in done.stdout


def test_progress_is_shown_on_a_terminal(tmp_path: Path) -> None:
    need_tmux()
    with terminal(tmp_path) as window:
        screen, code = window.type(f"PYTHONPATH={ROOT} {KEEP} certify {RIGHT} --only plain --only repeated > table")
    assert code == 0
    assert "till.add plain: held\ntill.add repeated: held" in screen
    assert "till: 2 held" in (tmp_path / "table").read_text("utf-8")


CONNECTOR = """
from tests.testing.certification.till import TillConnector


class Till(TillConnector):
    pass


class Other(TillConnector):
    pass
"""
SUBJECT = """

class {name}(TillCertification):
    kind = {kind}

    def connector(self, service) -> {kind}:
        return super().connector(service)
"""
TESTS = """
from tests.testing.certification.till import TillCertification

from shop import Other, Till
"""


def in_folder(folder: Path, subject: str, *, tests: str) -> subprocess.CompletedProcess[str]:
    (folder / "shop.py").write_text(CONNECTOR, "utf-8")
    (folder / "test_shop.py").write_text(tests, "utf-8")
    return subprocess.run(
        [KEEP, "certify", subject, "--only", "plain"],
        cwd=folder,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_connector_is_certified_by_the_one_certification_of_its_tests(tmp_path: Path) -> None:
    tests = TESTS + SUBJECT.format(name="Tried", kind="Till") + SUBJECT.format(name="OtherTried", kind="Other")
    done = in_folder(tmp_path, "shop:Till", tests=tests)
    assert done.returncode == 0, done.stderr
    assert "till: 1 held" in done.stdout


def test_a_connector_with_several_certifications_is_refused_with_their_names(tmp_path: Path) -> None:
    tests = TESTS + SUBJECT.format(name="Tried", kind="Till") + SUBJECT.format(name="TriedToo", kind="Till")
    done = in_folder(tmp_path, "shop:Till", tests=tests)
    assert done.returncode == 2
    assert "'shop:Till' has several certifications; name one: test_shop:Tried, test_shop:TriedToo" in done.stderr


def test_a_certification_that_makes_another_connector_is_no_certification_of_this_one(tmp_path: Path) -> None:
    done = in_folder(tmp_path, "shop:Other", tests=TESTS + "\n\nclass Tried(TillCertification):\n    kind = Till\n")
    assert done.returncode == 1
    assert "makes a Till, no Other" in done.stderr


def test_a_connector_without_a_certification_is_told_where_it_was_looked_for(tmp_path: Path) -> None:
    done = in_folder(tmp_path, "shop:Till", tests="")
    assert done.returncode == 2
    assert "there is no certification for it in shop or test_shop. Write a class" in done.stderr


def test_tests_that_cannot_be_imported_are_named_with_their_error(tmp_path: Path) -> None:
    done = in_folder(tmp_path, "shop:Till", tests="import nothing_of_this_name")
    assert done.returncode == 2
    assert "test_shop cannot be imported: ModuleNotFoundError: No module named 'nothing_of_this_name'" in done.stderr


@pytest.mark.parametrize(
    ("subject", "words"),
    [
        ("nowhere", "'nowhere' is not of the form module:name"),
        ("nowhere:Certified", "nowhere cannot be imported: ModuleNotFoundError"),
        (f"{NAIVE}:Nothing", f"{NAIVE} has no Nothing; certifications in it: TillCertification, "),
        ("json:loads", "'json:loads' is an object of function. Name a connector class"),
        ("json:JSONDecoder", "'json:JSONDecoder' is the class JSONDecoder. Name a connector class"),
        (f"{SUBJECTS}:NeedsArgumentsCertification", "It is made without arguments."),
    ],
)
def test_a_name_that_is_wrong_is_a_wrong_use(subject: str, words: str) -> None:
    done = certify(subject)
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_a_row_that_is_unknown_is_told_the_names_of_all() -> None:
    done = certify(RIGHT, "--only", "lost")
    assert done.returncode == 2
    assert f"There is no row 'lost'; there are: {', '.join(CertificationRow)}." in done.stderr


@pytest.mark.parametrize(
    ("subject", "words"),
    [
        ("DoesNotStartCertification", "could not be tried: ConnectionRefusedError: the till is closed today"),
        ("ReadsOnlyCertification", "could not be tried: ValueError: till has no mutation: there is nothing to certify"),
    ],
)
def test_what_cannot_be_tried_is_said_in_one_line(subject: str, words: str) -> None:
    done = certify(f"{SUBJECTS}:{subject}")
    assert done.returncode == 1
    assert words in done.stderr
    assert "Traceback" not in done.stderr
