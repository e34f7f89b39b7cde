"""Connectors that are wrong, each in one way, as connectors are written. Each has its certification."""

from typing import ClassVar

import anyio

from keep_actors.connectors import Applied, Connector, MutationCall, NotApplied, Transient, mutation
from keep_actors.testing.certification import RunningService
from tests.testing.certification.till import BROKEN, SETTLE_MS, TillCertification, TillConnector, said


class _Naive(TillCertification):
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


class TransientAlways(Adding):
    """Every error is `Transient`, as if nothing had happened."""

    async def sent(self, text: str, call: MutationCall) -> str:
        try:
            return await super().sent(text, call)
        except (OSError, *BROKEN) as error:
            raise Transient(f"the till cannot be reached: {error}") from error


class TransientAlwaysCertification(_Naive):
    made = TransientAlways


class NeverSending(Adding):
    """It declares `marks_sent`, and does not say when it sends."""

    async def sent(self, text: str, call: MutationCall) -> str:
        return (await said(self.address, f"ADD {call.idempotency_key} {text}"))[3:]


class NeverSendingCertification(_Naive):
    made = NeverSending


class SendsAgain(Adding):
    """It sends again by itself, to a service that does not know keys."""

    async def sent(self, text: str, call: MutationCall) -> str:
        for _ in range(2):
            try:
                with anyio.fail_after(0.15):
                    return await super().sent(text, call)
            except (OSError, *BROKEN):
                continue
        return await super().sent(text, call)


class SendsAgainCertification(_Naive):
    made = SendsAgain
    is_strict = False
    refuses_repetition = False


class NoKeysCertification(TillCertification):
    """A service that makes two effects of one key, although the subject says otherwise."""

    is_strict = False


class NeverFinds(Adding):
    """Its `reconcile` says `NotApplied` always."""

    async def looked(self, _: MutationCall) -> Applied | NotApplied:
        return NotApplied()


class NeverFindsCertification(_Naive):
    made = NeverFinds


class FindsAlways(Adding):
    """Its `reconcile` says `Applied` always."""

    async def looked(self, call: MutationCall) -> Applied | NotApplied:
        return Applied(call.params["text"])


class FindsAlwaysCertification(_Naive):
    made = FindsAlways


class FindsContent(Adding):
    """Its `reconcile` looks for the content, and not for the key."""

    async def looked(self, call: MutationCall) -> Applied | NotApplied:
        answer = await said(self.address, f"COUNT {call.params['text']}")
        return Applied(call.params["text"]) if answer != "OK 0" else NotApplied()


class FindsContentCertification(_Naive):
    made = FindsContent


class FindsAnotherResult(Adding):
    """Its `reconcile` returns something else than the call."""

    async def looked(self, call: MutationCall) -> Applied | NotApplied:
        found = await super().looked(call)
        return Applied("found") if isinstance(found, Applied) else found


class FindsAnotherResultCertification(_Naive):
    made = FindsAnotherResult


class NotAppliedOnErrors(Adding):
    """Its `reconcile` takes an error for an absence."""

    async def looked(self, call: MutationCall) -> Applied | NotApplied:
        try:
            with anyio.fail_after(0.1):
                return await super().looked(call)
        except (OSError, *BROKEN):
            return NotApplied()


class NotAppliedOnErrorsCertification(_Naive):
    made = NotAppliedOnErrors


class NoSettle(TillConnector):
    """It believes that no request is on its way when the time is over."""

    @mutation(marks_sent=True)
    async def add(self, text: str, call: MutationCall) -> str:
        """Add an entry."""
        return (await said(self.address, f"ADD {call.idempotency_key} {text}", call))[3:]

    @add.reconcile
    async def find(self, call: MutationCall) -> Applied | NotApplied:
        answer = await said(self.address, f"FIND {call.idempotency_key}")
        return Applied(answer[3:]) if answer.startswith("OK ") else NotApplied()


class NoSettleCertification(TillCertification):
    kind = NoSettle


class SharesState(Adding):
    """It keeps the parameters of a call in the connector."""

    async def sent(self, text: str, call: MutationCall) -> str:
        self.text = text
        await anyio.sleep(0.05)
        return (await said(self.address, f"ADD {call.idempotency_key} {self.text}", call))[3:]


class SharesStateCertification(_Naive):
    made = SharesState


class Asks(TillConnector):
    """It is right, and has no `reconcile`."""

    @mutation(marks_sent=True, check_hint="Look into the till.")
    async def add(self, text: str, call: MutationCall) -> str:
        """Add an entry."""
        return (await said(self.address, f"ADD {call.idempotency_key} {text}", call))[3:]


class AsksCertification(TillCertification):
    kind = Asks
