"""Holding workflow actors back: frozen, they take nothing from their mailboxes; a step lets one take one message."""

from collections import Counter

import anyio


class Pace:
    """Asked by every workflow actor before it takes a message."""

    def __init__(self) -> None:
        self._frozen: set[str] = set()
        self._all = False
        self._steps: Counter[str] = Counter()
        self._changed = anyio.Event()

    def freeze(self, workflow_id: str | None = None) -> None:
        """Freeze one workflow's actor, or without an id all of them."""
        if workflow_id is None:
            self._all = True
        else:
            self._frozen.add(workflow_id)

    def thaw(self) -> None:
        """Let all actors go on."""
        self._all = False
        self._frozen.clear()
        self._steps.clear()
        self._tell()

    def step(self, workflow_id: str) -> None:
        """Take one message."""
        self._steps[workflow_id] += 1
        self._tell()

    def is_frozen(self, workflow_id: str) -> bool:
        """True while it is held back."""
        return self._all or workflow_id in self._frozen

    async def __call__(self, workflow_id: str) -> None:
        """Return once this workflow may take a message."""
        while self.is_frozen(workflow_id):
            if self._steps[workflow_id]:
                self._steps[workflow_id] -= 1
                return
            await self._changed.wait()

    def _tell(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()
