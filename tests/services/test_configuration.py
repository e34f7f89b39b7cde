"""`keep.toml`: connectors from settings, secrets from where they are kept, and errors that say where and what."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest

from keep_actors.connectors import Catalog
from keep_actors.outbound.secret import Secret
from keep_actors.services import ConfigurationError, Service, load_configuration
from keep_actors.services.configuration import KINDS, kind_class

HIDDEN = "s3cret-value"
MODULE = """
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal
from keep_actors.connectors import read
from keep_actors.outbound.secret import Secret
from keep_actors.services import Service, ServiceSettings, SettingsError

class Bulb(ServiceSettings, frozen=True):
    colour: Literal["warm", "cold"]
    watts: int = 5

class LampSettings(ServiceSettings):
    room: str
    level: int = 3
    folder: Path = Path("here")
    token: Secret | None = None
    bulbs: Mapping[str, Bulb] = {}
    spare: Bulb | None = None
    names: Sequence[str] = ()
    tokens: Mapping[str, Secret] = {}

class Lamp(Service):
    name = "lamp"
    settings_type = LampSettings

    def __init__(self, settings, *, name=None):
        super().__init__(settings, name=name)
        self.settings = settings
        if settings.level > 9:
            raise SettingsError("level", f"is {settings.level}; write 0 to 9")
        if settings.level == 7:
            raise SettingsError("token", f"is {settings.token.reveal()}")
        if settings.level < 0:
            raise KeyError(f"bug with {settings.token.reveal()}")

    @read
    async def look(self) -> str:
        return self.settings.room

class NoService: ...

def token(): return "s3cret-value"
def nothing(): return None
def fails(): raise KeyError("s3cret-value")
"""


@pytest.fixture(autouse=True)
def lamps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A module with a kind of its own."""
    (tmp_path / "lamps.py").write_text(MODULE, "utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    sys.modules.pop("lamps", None)


def written(folder: Path, text: str) -> Path:
    path = folder / "keep.toml"
    path.write_text(dedent(text), "utf-8")
    return path


def lamp(folder: Path, more: str) -> Service:
    path = written(folder, f'[connectors.lamp]\nkind = "lamps:Lamp"\nroom = "hall"\n{more}')
    [found] = load_configuration(path)
    assert isinstance(found, Service)
    return found


def refused(folder: Path, text: str) -> str:
    path = written(folder, text)
    with pytest.raises(ConfigurationError) as caught:
        load_configuration(path)
    words = str(caught.value)
    assert words.startswith(str(path))
    assert HIDDEN not in words
    return words.removeprefix(str(path)).lstrip(": ")


def test_sections_become_connectors_with_names_of_their_own_in_order(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        """
        [connectors.upstairs]
        kind = "lamps:Lamp"
        room = "bath"

        [connectors.downstairs]
        kind = "lamps:Lamp"
        room = "hall"
        """,
    )
    catalog = Catalog(load_configuration(path))
    assert list(catalog.methods) == ["upstairs.look", "downstairs.look"]
    assert [each.permission for each in catalog.methods.values()] == ["upstairs.look", "downstairs.look"]


def test_a_path_is_relative_to_the_file_that_names_it(tmp_path: Path) -> None:
    assert vars(lamp(tmp_path, 'folder = "data/lamps"'))["settings"].folder == tmp_path / "data" / "lamps"
    assert vars(lamp(tmp_path, 'folder = "/data"'))["settings"].folder == Path("/data")


def test_a_secret_comes_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAMP_TOKEN", HIDDEN)
    assert token(lamp(tmp_path, 'token = { env = "LAMP_TOKEN" }')) == HIDDEN


def test_a_secret_comes_from_a_file_without_the_line_feed_at_its_end(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(f"{HIDDEN}\n", "utf-8")
    (tmp_path / "token").chmod(0o600)
    assert token(lamp(tmp_path, 'token = { file = "token" }')) == HIDDEN


def test_a_secret_comes_from_a_function(tmp_path: Path) -> None:
    assert token(lamp(tmp_path, 'token = { call = "lamps:token" }')) == HIDDEN


def test_a_mounted_secret_may_be_readable_for_others_if_that_is_said(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(HIDDEN, "utf-8")
    (tmp_path / "token").chmod(0o444)
    assert token(lamp(tmp_path, 'token = { file = "token", shared = true }')) == HIDDEN


def test_a_secret_is_hidden_in_the_connector(tmp_path: Path) -> None:
    found = lamp(tmp_path, 'token = { call = "lamps:token" }')
    assert [each.reveal() for each in found.__hidden__] == [HIDDEN]
    assert HIDDEN not in repr(vars(found))


def token(found: Service) -> str:
    secret = vars(found)["settings"].token
    assert isinstance(secret, Secret)
    return secret.reveal()


LAMP = '[connectors.lamp]\nkind = "lamps:Lamp"\nroom = "hall"\n'

WRONG = {
    "no TOML": ("[connectors", "is not TOML"),
    "another table": ('[conectors.lamp]\nkind = "lamps:Lamp"', "[conectors] is not known; write [connectors.NAME]"),
    "nothing": ("", "names no connector"),
    "no section": ('[connectors]\nlamp = "x"', "connectors.lamp is no section"),
    "no kind": ("[connectors.lamp]\nroom = 'hall'", "`kind` is missing; there are: chat, files"),
    "an unknown kind": ('[connectors.lamp]\nkind = "slq"', "there is no kind 'slq'; there are: chat"),
    "a kind that is nearly one": ('[connectors.lamp]\nkind = "email"', "did you mean mail?"),
    "no TOML, further below": (LAMP + "level = = 3", "is not TOML: Invalid value (at line 4, column 9)"),
    "one name twice": (LAMP + LAMP, "Cannot declare ('connectors', 'lamp') twice (at line 4"),
    "an unknown setting below a name": (
        LAMP + "bulbs.left = { color = 'warm' }",
        "[connectors.lamp]: bulbs.left.color: is not a known field; there are: colour, watts; did you mean colour?",
    ),
    "a missing setting below a name": (LAMP + "bulbs.left = {}", "bulbs.left.colour: is required and missing"),
    "a wrong word": (
        LAMP + "spare.colour = 'wram'",
        "spare.colour: there is no 'wram'; there are: warm, cold; did you",
    ),
    "a wrong type in a list": (LAMP + "names = ['a', 7]", "[connectors.lamp]: names[1]: expected string, got number"),
    "a wrong type below": (
        LAMP + "spare = { colour = 'warm', watts = 'x' }",
        "spare.watts: expected integer, got string",
    ),
    "a text for a section": (LAMP + "spare = 'warm'", "[connectors.lamp]: spare: expected object or null, got string"),
    "a secret in the file, below a name": (LAMP + f"tokens.left = '{HIDDEN}'", "tokens.left: a secret does not stand"),
    "a secret in the words of its class": (LAMP + 'level = 7\ntoken = { call = "lamps:token" }', "token: is [secret]"),
    "a pipe": (LAMP + 'token = { file = "pipe" }', "pipe is not a file"),
    "credentials in plain text": (
        '[connectors.shop]\nkind = "http"\nbase_url = "https://shop.example.org"\ncalls.look.path = "/"\n'
        f'headers = {{ Authorization = "Bearer {HIDDEN}" }}',
        "[connectors.shop]: headers.Authorization: is a secret; write it in secret_headers",
    ),
    "a missing module": ('[connectors.lamp]\nkind = "lampz:Lamp"', "lampz cannot be imported"),
    "a missing class": ('[connectors.lamp]\nkind = "lamps:Light"', "lamps has no class Light"),
    "another class": ('[connectors.lamp]\nkind = "lamps:NoService"', "has no class NoService that is a Service"),
    "a name that ctx has": ('[connectors.peek]\nkind = "lamps:Lamp"\nroom = "x"', "'peek' is a member of ctx"),
    "a name with a dash": ('[connectors.my-lamp]\nkind = "lamps:Lamp"\nroom = "x"', "not a JavaScript identifier"),
    "a missing setting": ('[connectors.lamp]\nkind = "lamps:Lamp"', "[connectors.lamp]: room: is required and missing"),
    "a wrong type": (LAMP + 'level = "high"', "[connectors.lamp]: level: expected integer, got string"),
    "a wrong path": (LAMP + "folder = 7", "[connectors.lamp]: folder: expected a path as text, got int"),
    "an unknown setting": (LAMP + "rum = 1", "rum: is not a known field; there are: room, level, folder, token"),
    "a refused setting": (LAMP + "level = 10", "[connectors.lamp]: level: is 10; write 0 to 9"),
    "a bug of its class": (LAMP + 'level = -1\ntoken = { call = "lamps:token" }', "bug with [secret]"),
    "a secret in the file": (LAMP + f'token = "{HIDDEN}"', "token: a secret does not stand in this file; write { env"),
    "two sources": (LAMP + 'token = { env = "A", file = "b" }', "token: a secret has one source"),
    "an unknown source": (LAMP + 'token = { vault = "A" }', "token: a secret has one source"),
    "an empty name": (LAMP + 'token = { env = "" }', "token: env is not a name"),
    "an unset variable": (LAMP + 'token = { env = "KEEP_TEST_NOT_SET" }', "the environment has no KEEP_TEST_NOT_SET"),
    "a missing file": (LAMP + 'token = { file = "nowhere" }', "nowhere cannot be read: No such file"),
    "an exposed file": (LAMP + 'token = { file = "exposed" }', "chmod 600"),
    "a file that others change": (LAMP + 'token = { file = "open", shared = true }', "others may change the file"),
    "a folder": (LAMP + 'token = { file = "." }', "token:"),
    "an empty file": (LAMP + 'token = { file = "empty" }', "is empty"),
    "bytes": (LAMP + 'token = { file = "bytes" }', "is not UTF-8 text"),
    "a large file": (LAMP + 'token = { file = "large" }', "has more than 65,536 bytes"),
    "no function": (LAMP + 'token = { call = "lamps:tokn" }', "there is no function 'lamps:tokn'"),
    "a function that fails": (LAMP + 'token = { call = "lamps:fails" }', "the function lamps:fails raised KeyError"),
    "a function of nothing": (LAMP + 'token = { call = "lamps:nothing" }', "returned no text"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_cannot_be_used_is_refused_with_file_place_and_remedy(case: str, tmp_path: Path) -> None:
    for name, content, mode in (
        ("exposed", HIDDEN.encode(), 0o640),
        ("open", HIDDEN.encode(), 0o666),
        ("empty", b"\n", 0o600),
        ("bytes", b"\xff\xfe", 0o600),
        ("large", b"x" * 70_000, 0o600),
    ):
        (tmp_path / name).write_bytes(content)
        (tmp_path / name).chmod(mode)
    os.mkfifo(tmp_path / "pipe")
    text, words = WRONG[case]
    assert words in refused(tmp_path, text)


def test_a_secret_of_another_user_is_refused(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a file to another user")
    (tmp_path / "token").write_text(HIDDEN, "utf-8")
    (tmp_path / "token").chmod(0o600)
    os.chown(tmp_path / "token", 12_345, 12_345)
    assert "belongs to another user" in refused(tmp_path, LAMP + 'token = { file = "token" }')


def test_a_file_that_is_not_there_is_an_error_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"nothing\.toml cannot be read: No such file"):
        load_configuration(tmp_path / "nothing.toml")


def test_a_file_may_begin_with_the_mark_of_an_editor(tmp_path: Path) -> None:
    (tmp_path / "keep.toml").write_text(LAMP, "utf-8-sig")
    assert len(load_configuration(tmp_path / "keep.toml")) == 1


CRM = '[connectors.crm]\nkind = "sql"\ndatabase = "crm.db"\n'
MAILBOX = '[connectors.mailbox]\nkind = "mail"\nfrom = "ann@example.com"\n'
SHOWN = {
    "a kind that is not there": '[connectors.crm]\nkind = "slq"',
    "a setting that is not there": MAILBOX + 'smtp = { host = "mail.example.com", prot = 25 }',
    "a word that is not one of a few": MAILBOX + 'sent_copy = "sever"',
    "a wrong type": CRM + 'timeout_ms = "1s"',
    "a setting that is missing": '[connectors.shop]\nkind = "http"\ncalls = {}',
    "a secret in the file": CRM + f'password = "{HIDDEN}"',
    "a secret that others can read": CRM + 'password = { file = "crm.password" }',
    "a variable that is not set": CRM + 'password = { env = "CRM_PASSWORD" }',
    "one name twice, other TOML": CRM + "create_receipts = true\n\n\n\n\n" + CRM,
}


def test_the_errors_of_the_page_are_those_that_people_get(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).parents[2] / "docs" / "services.md").read_text("utf-8")
    rows = page.partition("\n| what is wrong |")[2].partition("\n\n")[0].splitlines()[2:]
    cells = {what.strip(): error.strip(" `") for _, what, error, _ in (row.split("|") for row in rows)}
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CRM_PASSWORD", raising=False)
    Path("crm.password").write_text(HIDDEN, "utf-8")
    Path("crm.password").chmod(0o644)
    assert set(cells) - set(SHOWN) == {"a package that is not installed"}, "that one is tried below"
    for what, text in SHOWN.items():
        said = refused(Path(), text).replace("`", "")
        for words in cells[what].split("…"):
            assert words.strip() in said, (what, said)


WITHOUT = """
import sys
sys.modules[sys.argv[1]] = None
from keep_actors.services import ConfigurationError, load_configuration
try:
    load_configuration("keep.toml")
except ConfigurationError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("kind", "package", "extra"),
    [
        *(
            (kind, about.package, about.extra)
            for kind, about in KINDS.items()
            if about.extra not in ("postgres", "sheet", "")
        ),
        ('sql"\ndatabase = "postgresql://ann@127.0.0.1/crm', "psycopg", "postgres"),
    ],
)
def test_a_kind_whose_packages_are_missing_says_what_to_install(
    kind: str, package: str, extra: str, tmp_path: Path
) -> None:
    query = '\nqueries.one = { sql = "SELECT 1 AS one", columns = { one = "integer" } }' if extra == "postgres" else ""
    written(tmp_path, f'[connectors.it]\nkind = "{kind}"{query}')
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, package], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert f"pip install 'keep-actors[{extra}]'" in done.stdout
    assert done.stdout.startswith("keep.toml: [connectors.it]")


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_there_with_settings_of_its_own(kind: str) -> None:
    cls = kind_class(kind)
    assert issubclass(cls, Service)
    assert cls.settings_type.__doc__
