"""The web client: the addresses it reaches, when a request counts as sent, redirects, and bounds.

Every socket of these tests is on loopback: names are looked up by a function, and connections to other addresses are
recorded and not made.
"""

import ssl
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import httpcore2
import pytest
import trustme
from anyio.abc import ByteStream
from anyio.streams.tls import TLSListener

from keep_actors.outbound.addresses import Address
from keep_actors.outbound.checked import CheckedTransport, WebError, WebProblem
from keep_actors.outbound.web import Web, WebReply, WebRequest

pytestmark = pytest.mark.anyio

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"


class Server:
    """Reads a request and answers as told: bytes, or None to close without an answer."""

    def __init__(self, answers: Callable[[bytes], bytes | None]) -> None:
        self.answers = answers
        self.requests: list[bytes] = []
        self.port = 0

    async def serve(self, stream: ByteStream) -> None:
        async with stream:
            request = b""
            try:
                while b"\r\n\r\n" not in request:
                    request += await stream.receive()
            except (anyio.EndOfStream, anyio.BrokenResourceError):
                return
            self.requests.append(request)
            answer = self.answers(request)
            if answer is not None:
                await stream.send(answer)


@asynccontextmanager
async def serving(
    answers: Callable[[bytes], bytes | None] = lambda _: OK, tls: ssl.SSLContext | None = None
) -> AsyncIterator[Server]:
    server = Server(answers)
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    server.port = listener.extra(anyio.abc.SocketAttribute.local_port)
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(
            (TLSListener(listener, tls, standard_compatible=False) if tls else listener).serve, server.serve
        )
        yield server
        tasks.cancel_scope.cancel()


class Names:
    """Answers look-ups from a table, each time with the next row, and remembers where a connection was wanted."""

    def __init__(self, table: Mapping[str, Sequence[Sequence[str]]], real_port: int = 0) -> None:
        self.table = table
        self.asked: list[str] = []
        self.connected: list[Address] = []
        self.real_port = real_port

    async def resolve(self, host: str, _: int) -> Sequence[str]:
        rows = self.table[host]
        self.asked.append(host)
        return rows[min(self.asked.count(host), len(rows)) - 1]

    async def connect(self, address: str, port: int, timeout_s: float | None) -> httpcore2.AsyncNetworkStream:
        """Note the address, and connect to the server of the test on loopback."""
        self.connected.append((address, port))
        if not self.real_port:
            raise httpcore2.ConnectError("recorded, not made")
        return await httpcore2.AnyIOBackend().connect_tcp("127.0.0.1", self.real_port, timeout=timeout_s)


@asynccontextmanager
async def client(
    names: Names | None = None,
    *,
    allow: Sequence[Address] = (),
    tls: ssl.SSLContext | None = None,
    bytes_max: int = 1000,
) -> AsyncIterator[Web]:
    transport = CheckedTransport(
        allow=allow,
        ssl_context=tls,
        resolve=names.resolve if names else None,
        connect=names.connect if names else None,
    )
    web = Web(transport=transport, bytes_max=bytes_max, timeout_s=3)
    await web.open()
    try:
        yield web
    finally:
        await web.close()


async def fails(web: Web, url: str, method: str = "GET", *, redirects_max: int = 0) -> WebError:
    with pytest.raises(WebError) as caught:
        await web.send(WebRequest(method, url), redirects_max=redirects_max)
    return caught.value


PRIVATE = ["127.0.0.1", "10.0.0.5", "169.254.169.254", "192.168.0.1", "::1", "fd00::1", "::ffff:127.0.0.1"]


@pytest.mark.parametrize("address", PRIVATE)
async def test_a_name_with_an_address_that_is_not_public_is_refused_before_a_connection(address: str) -> None:
    names = Names({"intern.example": [[address]]})
    async with client(names) as web:
        error = await fails(web, "http://intern.example/")
    assert (error.problem, error.is_sent) == (WebProblem.ADDRESS_REFUSED, False)
    assert 'allow = ["intern.example:80"]' in str(error)
    assert names.connected == []


async def test_one_address_that_is_not_public_refuses_a_name_with_public_ones() -> None:
    names = Names({"both.example": [["93.184.216.34", "10.0.0.5"]]})
    async with client(names) as web:
        assert (await fails(web, "https://both.example/")).problem == WebProblem.ADDRESS_REFUSED
    assert names.connected == []


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.1", "2130706433", "0x7f.1", "[::1]", "[::ffff:127.0.0.1]", "localhost"]
)
async def test_every_spelling_of_this_machine_is_refused_by_the_system_that_looks_it_up(host: str) -> None:
    async with serving() as server, client() as web:
        error = await fails(web, f"http://{host}:{server.port}/")
    assert (error.problem, error.is_sent) == (WebProblem.ADDRESS_REFUSED, False)
    assert server.requests == []


async def test_an_address_is_connected_to_and_not_the_name_that_was_checked() -> None:
    async with serving() as server:
        names = Names({"shop.example": [["93.184.216.34"]]}, server.port)
        async with client(names) as web:
            assert (await web.send(WebRequest("GET", "http://shop.example/a?b=c"))).body == b"hi"
    assert names.connected == [("93.184.216.34", 80)]
    assert server.requests[0].startswith(b"GET /a?b=c HTTP/1.1\r\nHost: shop.example\r\n")


async def test_a_name_that_changes_its_address_is_checked_for_each_connection() -> None:
    async with serving() as server:
        names = Names({"shop.example": [["93.184.216.34"], ["10.0.0.5"]]}, server.port)
        async with client(names) as web:
            await web.send(WebRequest("GET", "http://shop.example/"))
            assert (await fails(web, "http://shop.example/")).problem == WebProblem.ADDRESS_REFUSED
    assert names.connected == [("93.184.216.34", 80)]
    assert names.asked == ["shop.example"] * 2


async def test_a_redirect_to_an_address_that_is_not_public_is_refused() -> None:
    redirect = b"HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/latest/\r\nContent-Length: 0\r\n\r\n"
    async with serving(lambda _: redirect) as server:
        names = Names({"shop.example": [["93.184.216.34"]], "169.254.169.254": [["169.254.169.254"]]}, server.port)
        async with client(names) as web:
            error = await fails(web, "http://shop.example/", redirects_max=5)
    assert error.problem == WebProblem.ADDRESS_REFUSED
    assert names.connected == [("93.184.216.34", 80)]


async def test_what_an_operator_allows_is_that_host_with_that_port_alone() -> None:
    async with serving() as one, serving() as other, client(allow=[("127.0.0.1", one.port)]) as web:
        assert (await web.send(WebRequest("GET", f"http://127.0.0.1:{one.port}/"))).status == 200
        assert (await fails(web, f"http://127.0.0.1:{other.port}/")).problem == WebProblem.ADDRESS_REFUSED
        assert (await fails(web, f"http://localhost:{one.port}/")).problem == WebProblem.ADDRESS_REFUSED


async def test_the_next_address_is_tried_if_one_does_not_answer() -> None:
    async with serving() as server:

        class Half(Names):
            async def connect(self, address: str, port: int, timeout_s: float | None) -> httpcore2.AsyncNetworkStream:
                if address == "93.184.216.34":
                    self.connected.append((address, port))
                    raise httpcore2.ConnectError("refused")
                return await super().connect(address, port, timeout_s)

        names = Half({"shop.example": [["93.184.216.34", "93.184.216.35"]]}, server.port)
        async with client(names) as web:
            assert (await web.send(WebRequest("GET", "http://shop.example/"))).status == 200
    assert [address for address, _ in names.connected] == ["93.184.216.34", "93.184.216.35"]


# Sent, or not.


async def test_a_refused_connection_is_not_sent() -> None:
    async with client(Names({"shop.example": [["93.184.216.34"]]})) as web:
        error = await fails(web, "http://shop.example/")
    assert (error.problem, error.is_sent) == (WebProblem.UNREACHABLE, False)


async def test_a_connection_that_ends_without_an_answer_was_sent() -> None:
    async with serving(lambda _: None) as server, client(allow=[("127.0.0.1", server.port)]) as web:
        error = await fails(web, f"http://127.0.0.1:{server.port}/", "POST")
    assert (error.problem, error.is_sent) == (WebProblem.BROKEN, True)


async def test_what_raises_before_the_first_byte_keeps_the_request_from_being_sent() -> None:
    class TooLate(Exception): ...

    def refuse() -> None:
        raise TooLate

    async with serving() as server, client(allow=[("127.0.0.1", server.port)]) as web:
        with pytest.raises(TooLate):
            await web.send(WebRequest("POST", f"http://127.0.0.1:{server.port}/"), sending=refuse)
    assert server.requests == []


async def test_it_is_told_of_the_sending_after_the_connection_is_there() -> None:
    told: list[int] = []
    async with serving() as server, client(allow=[("127.0.0.1", server.port)]) as web:
        url = f"http://127.0.0.1:{server.port}/"
        await web.send(WebRequest("POST", url), sending=lambda: told.append(len(server.requests)))
    assert told == [0]


INVALID = {
    "another scheme": WebRequest("GET", "file:///etc/passwd"),
    "no host": WebRequest("GET", "http:///"),
    "a user": WebRequest("GET", "http://ann:pw@127.0.0.1/"),
    "no port": WebRequest("GET", "http://127.0.0.1:99999/"),
    "a line feed in a header": WebRequest("GET", "http://127.0.0.1/", {"x": "a\r\nHost: b"}),
    "another letter in a header": WebRequest("GET", "http://127.0.0.1/", {"x": "ü"}),
    "a name that is none": WebRequest("GET", "http://127.0.0.1/", {"x y": "a"}),
}


@pytest.mark.parametrize("case", INVALID)
async def test_a_request_that_cannot_be_made_is_not_sent(case: str) -> None:
    async with client(Names({})) as web:
        with pytest.raises(WebError) as caught:
            await web.send(INVALID[case])
    assert (caught.value.problem, caught.value.is_sent) == (WebProblem.INVALID_REQUEST, False)


# Answers.


async def test_an_answer_that_is_too_large_is_not_read_to_its_end() -> None:
    large = b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n" + b"x" * 5000
    async with serving(lambda _: large) as server, client(allow=[("127.0.0.1", server.port)]) as web:
        error = await fails(web, f"http://127.0.0.1:{server.port}/")
    assert (error.problem, error.is_sent) == (WebProblem.TOO_LARGE, True)


async def test_a_compressed_answer_is_refused() -> None:
    answer = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\nhi"
    async with serving(lambda _: answer) as server, client(allow=[("127.0.0.1", server.port)]) as web:
        error = await fails(web, f"http://127.0.0.1:{server.port}/")
    assert (error.problem, error.is_sent) == (WebProblem.ENCODED, True)


async def test_cookies_are_not_kept() -> None:
    answer = b"HTTP/1.1 200 OK\r\nSet-Cookie: a=b\r\nContent-Length: 0\r\n\r\n"
    async with serving(lambda _: answer) as server, client(allow=[("127.0.0.1", server.port)]) as web:
        for _ in range(2):
            await web.send(WebRequest("GET", f"http://127.0.0.1:{server.port}/"))
    assert not any(b"ookie" in request for request in server.requests)


def redirecting(target: str) -> Callable[[bytes], bytes]:
    def answer(request: bytes) -> bytes:
        if request.startswith((b"GET /end", b"POST /end")):
            return OK
        return f"HTTP/1.1 302 Found\r\nLocation: {target}\r\nContent-Length: 0\r\n\r\n".encode()

    return answer


async def redirected(target: str, method: str = "GET", redirects_max: int = 3) -> tuple[WebReply, list[bytes]]:
    async with serving(redirecting(target)) as server:
        names = Names({"a.example": [["93.184.216.34"]], "b.example": [["93.184.216.35"]]}, server.port)
        async with client(names) as web:
            request = WebRequest(
                method, "http://a.example/start", {"Authorization": "Bearer x", "Accept": "text/plain"}
            )
            return await web.send(request, redirects_max=redirects_max), server.requests


async def test_a_redirect_to_the_same_origin_keeps_the_credentials() -> None:
    reply, requests = await redirected("/end")
    assert (reply.status, reply.url) == (200, "http://a.example/end")
    assert b"Bearer x" in requests[1]


async def test_a_redirect_to_another_origin_loses_the_credentials() -> None:
    reply, requests = await redirected("http://b.example/end")
    assert reply.status == 200
    assert b"Bearer x" not in requests[1]
    assert b"text/plain" in requests[1]


async def test_a_request_that_changes_something_is_never_redirected() -> None:
    reply, requests = await redirected("/end", "POST")
    assert (reply.status, len(requests)) == (302, 1)


async def test_a_read_follows_no_redirect_unless_it_is_asked_for() -> None:
    reply, requests = await redirected("/end", redirects_max=0)
    assert (reply.status, len(requests)) == (302, 1)


@pytest.mark.parametrize("target", ["/start", "file:///etc/passwd", "", "ftp://a.example/"])
async def test_redirects_that_lead_nowhere_end(target: str) -> None:
    names = Names({"a.example": [["93.184.216.34"]]})
    async with serving(redirecting(target)) as server, client(names) as web:
        names.real_port = server.port
        error = await fails(web, "http://a.example/start", redirects_max=3)
    assert (error.problem, error.is_sent) == (WebProblem.REDIRECTED, True)


# Certificates.


@pytest.mark.parametrize(("name", "is_trusted"), [("shop.example", True), ("other.example", False)])
async def test_a_certificate_is_expected_for_the_name_of_the_url(name: str, is_trusted: bool, tmp_path: Path) -> None:
    ca = trustme.CA()
    ours = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ca.issue_cert("shop.example").configure_cert(ours)
    theirs = ssl.create_default_context()
    ca.configure_trust(theirs)
    async with serving(tls=ours) as server:
        names = Names({name: [["93.184.216.34"]]}, server.port)
        async with client(names, tls=theirs) as web:
            if is_trusted:
                assert (await web.send(WebRequest("GET", f"https://{name}/"))).status == 200
                return
            error = await fails(web, f"https://{name}/", "POST")
    assert (error.problem, error.is_sent) == (WebProblem.CERTIFICATE, False)
    assert server.requests == []
