"""Connectors that are wrong, each in one way, as connectors are written. Each has its certification."""

import socket
from contextlib import suppress
from typing import ClassVar
from uuid import uuid4

import anyio
from anyio.abc import SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream

from keep_actors.connectors import Applied, Connector, InvalidCall, MutationCall, NotApplied, Transient, mutation
from keep_actors.testing.certification import RunningService, ServiceAddress
from tests.testing.certification.till import BROKEN, SETTLE_MS, TillCertification, TillConnector, said

OWN_TIME_S = 1.0
"""The time-out of connectors that have one: longer than the suite lets a call take, shorter than its patience."""


class NaiveCertification(TillCertification):
    """The certification of a connector that derives from `Adding`."""

    made: ClassVar[type["Adding"]]

    def connector(self, service: RunningService) -> Connector:
        return self.made(service.addresses["till"])


class Adding(TillConnector):
    """The same, with a part of its own in place of one that is right."""

    async def sent(self, text: str, call: MutationCall) -> str:
        return (await said(self.address, f"ADD {call.idempotency_key} {text}", call))[3:]

    async def looked(self, call: MutationCall) -> Applied | NotApplied:
        answer = await said(self.address, f"FIND {call.idempotency_key}")
        return Applied(answer[3:]) if answer.startswith("OK ") else NotApplied()

    @mutation(marks_sent=True, settle_ms=SETTLE_MS)
    async def add(self, text: str, call: MutationCall) -> str:
        """Add an entry."""
        return await self.sent(text, call)

    @add.reconcile
    async def find(self, call: MutationCall) -> Applied | NotApplied:
        return await self.looked(call)


# It promises that nothing happened.


class TransientAlways(Adding):
    """Every error is `Transient`, as if nothing had happened."""

    async def sent(self, text: str, call: MutationCall) -> str:
        try:
            with anyio.fail_after(OWN_TIME_S):
                return await super().sent(text, call)
        except (OSError, *BROKEN) as error:
            raise Transient(f"the till cannot be reached: {error}") from error


class TransientAlwaysCertification(NaiveCertification):
    made = TransientAlways


class TransientWhenLate(Adding):
    """Its own time-out is `Transient`."""

    async def sent(self, text: str, call: MutationCall) -> str:
        try:
            with anyio.fail_after(OWN_TIME_S):
                return await super().sent(text, call)
        except TimeoutError as error:
            raise Transient("the till is slow") from error


class TransientWhenLateCertification(NaiveCertification):
    made = TransientWhenLate


class HalfIsARefusal(Adding):
    """An answer that it cannot read is a refusal to it."""

    async def sent(self, text: str, call: MutationCall) -> str:
        async with await anyio.connect_tcp(*self.address) as stream:
            call.sending()
            await stream.send(f"ADD {call.idempotency_key} {text}\n".encode())
            answer = await stream.receive()
            with suppress(anyio.EndOfStream):
                while not answer.endswith(b"\n"):
                    answer += await stream.receive()
        if not answer.endswith(b"\n"):
            raise InvalidCall(f"the till says {answer!r}")
        return answer.decode()[3:-1]


class HalfIsARefusalCertification(NaiveCertification):
    made = HalfIsARefusal


# It does not say when it sends.


class NeverSending(Adding):
    """It declares `marks_sent`, and does not say when it sends."""

    async def sent(self, text: str, call: MutationCall) -> str:
        return (await said(self.address, f"ADD {call.idempotency_key} {text}"))[3:]


class NeverSendingCertification(NaiveCertification):
    made = NeverSending


class SendingTooLate(Adding):
    """It says that it sends when it has sent."""

    async def sent(self, text: str, call: MutationCall) -> str:
        async with await anyio.connect_tcp(*self.address) as stream:
            await stream.send(f"ADD {call.idempotency_key} {text}\n".encode())
            call.sending()
            return (await BufferedByteReceiveStream(stream).receive_until(b"\n", 1000)).decode()[3:]


class SendingTooLateCertification(NaiveCertification):
    made = SendingTooLate


class SendsAllTheSame(Adding):
    """It sends although `call.sending()` refuses."""

    async def sent(self, text: str, call: MutationCall) -> str:
        with suppress(Transient):
            call.sending()
        return (await said(self.address, f"ADD {call.idempotency_key} {text}"))[3:]


class SendsAllTheSameCertification(NaiveCertification):
    made = SendsAllTheSame


# It makes more than one effect.


class SendsAgain(Adding):
    """It sends again by itself, to a service that does not know keys."""

    async def sent(self, text: str, call: MutationCall) -> str:
        with suppress(OSError, *BROKEN):
            return await super().sent(text, call)
        return await super().sent(text, call)


class SendsAgainCertification(NaiveCertification):
    made = SendsAgain
    is_strict = False
    refuses_repetition = False


class SendsAgainWhenLate(Adding):
    """It sends again when no answer comes soon."""

    async def sent(self, text: str, call: MutationCall) -> str:
        with suppress(TimeoutError), anyio.fail_after(0.25):
            return await super().sent(text, call)
        return await super().sent(text, call)


class SendsAgainWhenLateCertification(NaiveCertification):
    made = SendsAgainWhenLate
    is_strict = False
    refuses_repetition = False


class NoKeysCertification(TillCertification):
    """A service that makes two effects of one key, although the subject says otherwise."""

    is_strict = False


class NewKeys(Adding):
    """Each attempt has a key of its own, which the connector keeps in mind."""

    def __init__(self, address: ServiceAddress) -> None:
        super().__init__(address)
        self.keys: dict[str, str] = {}

    async def sent(self, text: str, call: MutationCall) -> str:
        key = self.keys[call.idempotency_key] = uuid4().hex
        return (await said(self.address, f"ADD {key} {text}", call))[3:]

    async def looked(self, call: MutationCall) -> Applied | NotApplied:
        if call.idempotency_key not in self.keys:
            return NotApplied()
        answer = await said(self.address, f"FIND {self.keys[call.idempotency_key]}")
        return Applied(answer[3:]) if answer.startswith("OK ") else NotApplied()


class NewKeysCertification(NaiveCertification):
    made = NewKeys


# It does not go along with its host.


class SwallowsCancellation(Adding):
    """It returns when it is cancelled, as if it had finished."""

    async def sent(self, text: str, call: MutationCall) -> str:
        try:
            return await super().sent(text, call)
        except anyio.get_cancelled_exc_class():
            return text


class SwallowsCancellationCertification(NaiveCertification):
    made = SwallowsCancellation


class ShieldsItself(Adding):
    """It does not let itself be cancelled."""

    async def sent(self, text: str, call: MutationCall) -> str:
        answer = ""
        with anyio.CancelScope(shield=True):
            answer = await super().sent(text, call)
        return answer  # noqa: RET504  # mypy: a scope may swallow


class ShieldsItselfCertification(NaiveCertification):
    made = ShieldsItself


class SharesState(Adding):
    """It keeps the parameters of a call in the connector."""

    async def sent(self, text: str, call: MutationCall) -> str:
        self.text = text
        await anyio.sleep(0.05)
        return (await said(self.address, f"ADD {call.idempotency_key} {self.text}", call))[3:]


class SharesStateCertification(NaiveCertification):
    made = SharesState


class NeverReconnects(Adding):
    """It has one connection, for ever."""

    async def open(self) -> None:
        self.lock = anyio.Lock()
        self.stream: SocketStream | None = await anyio.connect_tcp(*self.address)

    async def close(self) -> None:
        if self.stream is not None:
            await self.stream.aclose()

    async def sent(self, text: str, call: MutationCall) -> str:
        return (await self.say(f"ADD {call.idempotency_key} {text}", call))[3:]

    async def looked(self, call: MutationCall) -> Applied | NotApplied:
        answer = await self.say(f"FIND {call.idempotency_key}")
        return Applied(answer[3:]) if answer.startswith("OK ") else NotApplied()

    async def say(self, line: str, call: MutationCall | None = None) -> str:
        async with self.lock:
            stream, self.stream = self.stream, None
            if stream is None:
                raise ConnectionError("the connection is broken")
            try:
                if call is not None:
                    call.sending()
                await stream.send(f"{line}\n".encode())
                answer = await BufferedByteReceiveStream(stream).receive_until(b"\n", 1000)
            except BaseException:
                await anyio.aclose_forcefully(stream)
                raise
            self.stream = stream
        return answer.decode()


class NeverReconnectsCertification(NaiveCertification):
    made = NeverReconnects


class Blocks(Adding):
    """It has a client that is not async, and blocks the event loop with it."""

    async def sent(self, text: str, call: MutationCall) -> str:
        call.sending()
        with socket.create_connection(self.address) as connection:
            connection.sendall(f"ADD {call.idempotency_key} {text}\n".encode())
            return connection.recv(1000).decode()[3:-1]


class BlocksCertification(NaiveCertification):
    made = Blocks


# It is right.


class Asks(TillConnector):
    """It is right, and has no `reconcile`."""

    @mutation(marks_sent=True, check_hint="Look into the till.")
    async def add(self, text: str, call: MutationCall) -> str:
        """Add an entry."""
        return (await said(self.address, f"ADD {call.idempotency_key} {text}", call))[3:]


class AsksCertification(TillCertification):
    kind = Asks
