"""Connectors whose `reconcile` is wrong, each in one way; and one that is right with notes."""

from uuid import uuid4

import anyio

from keep_actors.connectors import Applied, MutationCall, NotApplied, mutation
from tests.testing.certification.naive import OWN_TIME_S, Adding, NaiveCertification
from tests.testing.certification.till import BROKEN, TillCertification, TillConnector, said


class NeverFinds(Adding):
    """Its `reconcile` says `NotApplied` always."""

    async def looked(self, _: MutationCall) -> Applied | NotApplied:
        return NotApplied()


class NeverFindsCertification(NaiveCertification):
    made = NeverFinds


class FindsAlways(Adding):
    """Its `reconcile` says `Applied` always."""

    async def looked(self, call: MutationCall) -> Applied | NotApplied:
        return Applied(call.params["text"])


class FindsAlwaysCertification(NaiveCertification):
    made = FindsAlways


class CannotLook(Adding):
    """Its `reconcile` raises always."""

    async def looked(self, _: MutationCall) -> Applied | NotApplied:
        raise NotImplementedError


class CannotLookCertification(NaiveCertification):
    made = CannotLook


class FindsContent(Adding):
    """Its `reconcile` looks for the content, and not for the key."""

    async def looked(self, call: MutationCall) -> Applied | NotApplied:
        answer = await said(self.address, f"COUNT {call.params['text']}")
        return Applied(call.params["text"]) if answer != "OK 0" else NotApplied()


class FindsContentCertification(NaiveCertification):
    made = FindsContent


class FindsShortKeys(Adding):
    """Its `reconcile` looks for a part of the key, as a service with short references makes one do."""

    async def looked(self, call: MutationCall) -> Applied | NotApplied:
        answer = await said(self.address, f"FIND_LIKE {call.idempotency_key[:-1]}")
        return Applied(answer[3:]) if answer.startswith("OK ") else NotApplied()


class FindsShortKeysCertification(NaiveCertification):
    made = FindsShortKeys


class FindsAnotherResult(Adding):
    """Its `reconcile` returns something else than the call."""

    async def looked(self, call: MutationCall) -> Applied | NotApplied:
        found = await super().looked(call)
        return Applied("found") if isinstance(found, Applied) else found


class FindsAnotherResultCertification(NaiveCertification):
    made = FindsAnotherResult


class NotAppliedOnErrors(Adding):
    """Its `reconcile` takes an error for an absence."""

    async def looked(self, call: MutationCall) -> Applied | NotApplied:
        try:
            with anyio.fail_after(OWN_TIME_S):
                return await super().looked(call)
        except (OSError, *BROKEN):
            return NotApplied()


class NotAppliedOnErrorsCertification(NaiveCertification):
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


class Repeats(Adding):
    """Its `reconcile` makes the call again. Where the service keeps keys, and the subject says so, that is right."""

    async def looked(self, call: MutationCall) -> Applied | NotApplied:
        return Applied((await said(self.address, f"ADD {call.idempotency_key} {call.params['text']}"))[3:])


class RepeatsCertification(NaiveCertification):
    made = Repeats
    reconcile_repeats = True


class RepeatsInSecretCertification(NaiveCertification):
    """The subject does not say so."""

    made = Repeats


class RepeatsWithoutKeysCertification(NaiveCertification):
    """The service does not keep keys."""

    made = Repeats
    reconcile_repeats = True
    refuses_repetition = False
    is_strict = False


# It takes notes.


class NotesFirst(Adding):
    """It makes a key of its own, and is right: the note is durable before the key is used."""

    async def sent(self, text: str, call: MutationCall) -> str:
        key = uuid4().hex
        await call.note(key)
        return (await said(self.address, f"ADD {key} {text}", call))[3:]

    async def looked(self, call: MutationCall) -> Applied | NotApplied:
        if not call.noted:
            return NotApplied()
        answer = await said(self.address, f"FIND {call.noted}")
        return Applied(answer[3:]) if answer.startswith("OK ") else NotApplied()


class NotesFirstCertification(NaiveCertification):
    made = NotesFirst
    refuses_repetition = False


class NotesLate(NotesFirst):
    """It notes its key when the service has answered."""

    async def sent(self, text: str, call: MutationCall) -> str:
        key = uuid4().hex
        answer = (await said(self.address, f"ADD {key} {text}", call))[3:]
        await call.note(key)
        return answer


class NotesLateCertification(NotesFirstCertification):
    made = NotesLate


class TrustsItsNote(NotesFirst):
    """A note is an effect to it."""

    async def looked(self, call: MutationCall) -> Applied | NotApplied:
        return Applied(call.params["text"]) if call.noted else NotApplied()


class TrustsItsNoteCertification(NotesFirstCertification):
    made = TrustsItsNote
