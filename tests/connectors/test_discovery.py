import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent

import pytest

from keep_actors.connectors import Connector, ConnectorLoadError, discover, load

MODULE = """
from keep_actors.connectors import Connector, read

class Mail(Connector):
    name = "mail"
    @read
    async def search(self) -> list[str]: ...

class Chat(Connector):
    name = "chat"
    def __init__(self, token: str) -> None:
        self.token = token
    @read
    async def messages(self) -> list[str]: ...

chat = Chat("t")

def make_chat() -> Chat:
    return Chat("made")

def make_both() -> list[Connector]:
    return [Mail(), chat]

def fail() -> Chat:
    raise KeyError("CHAT_TOKEN")

def make_nothing() -> None: ...
async def make_later() -> Chat: ...
def make_factory() -> object:
    return make_chat

everything = [Mail, chat, make_chat]
number = 7

class Holder:
    chat = Chat("held")
"""

Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Puts a distribution on the path: its module and its entry points, as an installer leaves them."""
    modules: list[str] = []

    def install(name: str, source: str, **offered: str) -> None:
        site = tmp_path / name
        info = site / f"{name}-1.2.dist-info"
        info.mkdir(parents=True)
        (site / f"{name}.py").write_text(dedent(source), "utf-8")
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n", "utf-8")
        lines = [f"{key} = {value}" for key, value in offered.items()]
        (info / "entry_points.txt").write_text("\n".join(["[keep_actors.connectors]", *lines, ""]), "utf-8")
        monkeypatch.syspath_prepend(str(site))
        modules.append(name)

    yield install
    for module in modules:
        sys.modules.pop(module, None)


def names(connectors: list[Connector]) -> list[str]:
    return [connector.name for connector in connectors]


def test_installed_connectors_are_found_by_name(install: Install) -> None:
    install("acme", MODULE, mail="acme:Mail", chat="acme:chat")
    assert names(discover()) == ["chat", "mail"]
    assert names(discover(["mail"])) == ["mail"]
    assert names(discover(["mail", "chat", "mail"])) == ["mail", "chat"]
    assert discover([]) == []


@pytest.mark.parametrize("target", ["chat", "make_chat"])
def test_an_entry_point_is_a_class_a_factory_or_an_instance(install: Install, target: str) -> None:
    install("acme", MODULE, chat=f"acme:{target}")
    assert names(discover()) == ["chat"]


def test_without_installed_connectors_nothing_is_found() -> None:
    assert discover() == []
    with pytest.raises(ConnectorLoadError, match="no installed distribution has a connector 'mail'; there are: none"):
        discover(["mail"])


def test_an_unknown_name_is_answered_with_those_there_are(install: Install) -> None:
    install("acme", MODULE, mail="acme:Mail", chat="acme:chat")
    with pytest.raises(ConnectorLoadError, match="has a connector 'sheets'; there are: chat, mail"):
        discover(["sheets"])


def test_what_was_not_asked_for_is_not_loaded(install: Install) -> None:
    install("acme", MODULE, mail="acme:Mail", broken="acme:nothing")
    assert names(discover(["mail"])) == ["mail"]


@pytest.mark.parametrize(
    ("target", "text"),
    [
        ("acme:nothing", "cannot be imported: AttributeError: module 'acme' has no attribute 'nothing'"),
        ("nowhere:Mail", "cannot be imported: ModuleNotFoundError: No module named 'nowhere'"),
        ("acme:number", "is 7; expected a connector, its class, a function that makes it or a list"),
        ("acme:Holder", "is <class 'acme.Holder'>; expected a connector"),
        ("acme:Chat", "cannot be made: TypeError: Chat.__init__() missing 1 required positional argument: 'token'"),
        ("acme:fail", "cannot be made: KeyError: 'CHAT_TOKEN'. It is called without arguments."),
        ("acme:make_nothing", "makes None; expected a connector"),
        ("acme:make_factory", "makes <function make_chat"),
        ("acme:make_later", "is an async function; use a plain one, and await in `open`"),
    ],
)
def test_a_bad_entry_point_is_named_with_its_distribution(install: Install, target: str, text: str) -> None:
    install("acme", MODULE, chat=target)
    with pytest.raises(ConnectorLoadError) as refused:
        discover()
    assert str(refused.value).startswith(f"connector 'chat' ({target}) of acme 1.2 ")
    assert text in str(refused.value)


def test_a_name_that_two_distributions_offer_is_refused(install: Install) -> None:
    install("acme", MODULE, mail="acme:Mail")
    install("globex", MODULE, mail="globex:Mail")
    with pytest.raises(ConnectorLoadError, match=r"'mail' is offered by acme 1\.2 and globex 1\.2; keep one of them"):
        discover()


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("acme:Mail", ["mail"]),
        ("acme:chat", ["chat"]),
        ("acme:make_chat", ["chat"]),
        ("acme:make_both", ["mail", "chat"]),
        ("acme:everything", ["mail", "chat", "chat"]),
        ("acme:Holder.chat", ["chat"]),
    ],
)
def test_a_connector_is_loaded_from_its_module(install: Install, spec: str, expected: list[str]) -> None:
    install("acme", MODULE)
    assert names(load(spec)) == expected


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ("acme", "'acme' is not of the form module:name, as in my_package.mail:Gmail"),
        ("acme:", "'acme:' is not of the form module:name"),
        (":Mail", "':Mail' is not of the form module:name"),
        ("acme:Mail:x", "'acme:Mail:x' is not of the form module:name"),
        ("./acme.py:Mail", "'./acme.py:Mail' is not of the form module:name"),
        ("nowhere.mail:Mail", "'nowhere.mail:Mail': there is no module 'nowhere'; is it installed, or its folder in"),
        ("acme.mail:Mail", "'acme.mail:Mail': there is no module 'acme.mail'"),
        ("acme:Sheets", "'acme:Sheets': acme has no Sheets; connectors in it: Mail, Chat, chat"),
        ("acme:Holder.mail", "'acme:Holder.mail': acme has no Holder.mail"),
        ("acme:number", "'acme:number' is 7; expected a connector, its class, a function that makes it or a list"),
        ("acme:Chat", "'acme:Chat' cannot be made: TypeError"),
        ("wants:Mail", "'wants:Mail': wants cannot be imported: ModuleNotFoundError: No module named 'missing'"),
        ("broken:Mail", "'broken:Mail': broken cannot be imported: ZeroDivisionError: division by zero"),
        ("refused:Mail", "'refused:Mail': refused cannot be imported: keep_actors.connectors.errors.ConnectorDef"),
    ],
)
def test_what_cannot_be_loaded_is_explained(install: Install, spec: str, text: str) -> None:
    install("acme", MODULE)
    install("wants", "import missing")
    install("broken", "1 / 0")
    install("refused", "from keep_actors.connectors import Connector\nclass Mail(Connector):\n    name = 'item'")
    with pytest.raises(ConnectorLoadError) as refused:
        load(spec)
    assert str(refused.value).startswith(text)
