"""The engine of one process: the compiled module, the images of scripts, and the idle instances."""

import threading
from collections import OrderedDict
from functools import cache
from importlib import resources
from typing import Final, NamedTuple

from keep_sandbox import wasm
from keep_sandbox.compiled import machine_code
from keep_sandbox.images import Image, ScriptImage
from keep_sandbox.limits import SCRIPT_LINES_MAX, STACK_BYTES_MAX, Limits
from keep_sandbox.shim import Seen, ShimResult, put, seen_in
from keep_sandbox.wasm import Instance, Module

ENGINE_VERSION: Final = "0.17.0.2"
"""The version of QuickJS-ng in `engine.wasm`."""

IMAGES_BYTES_MAX: Final = 128 * 1024 * 1024
"""Images of scripts that an engine keeps. That of a small script takes about 90 KB."""
IDLE_MAX: Final = 32
"""Instances that an engine keeps while no guest has them: as many as a worker usually has calls at a time."""

LINE_AFTER_SCRIPTS: Final = SCRIPT_LINES_MAX + 1
"""The line that our own code begins with: a smaller one is the author's."""


class Known(NamedTuple):
    """A script that was loaded before."""

    image: ScriptImage | None
    """The image that a guest begins with; None if the script must be loaded each time."""

    @property
    def bytes_kept(self) -> int:
        """The memory that it takes, without the text of the script."""
        return self.image.bytes_kept if self.image is not None else 0


class Engine:
    """The module, the images and the idle instances of one process. Threads may share it."""

    def __init__(self, machine_code: bytes) -> None:
        """Load a compiled module, and run the prelude once. `machine_code()` gives the product's own."""
        self._module = Module(machine_code)
        self._lock = threading.Lock()
        self._images: OrderedDict[tuple[str, Limits], Known] = OrderedDict()
        self.images_bytes = 0
        """The memory that the images of scripts take."""
        self._idle: list[Instance] = []
        instance = Instance(self._module)
        instance.fuel = 1 << 40
        instance.call("_initialize")
        self.seen_at: Final = instance.call("init", STACK_BYTES_MAX)
        prelude = _package_file("prelude.js")
        put(instance, prelude)
        loaded = instance.call("prelude", len(prelude), LINE_AFTER_SCRIPTS)
        assert loaded == ShimResult.LOADED, "the prelude loads"
        self.prelude: Final = Image(instance, self.seen(instance).heap_top)
        self.give_back(instance)
        self.declare_source: Final = _package_file("declare.js")

    @property
    def image_count(self) -> int:
        """The number of images of scripts."""
        return sum(each.image is not None for each in self._images.values())

    def seen(self, instance: Instance) -> Seen:
        """The state that the shim shows. Hostile."""
        return seen_in(instance, self.seen_at)

    def known(self, source: str, limits: Limits) -> Known | None:
        """The script, if it was loaded before and is not forgotten."""
        with self._lock:
            known = self._images.get((source, limits))
            if known is not None:
                self._images.move_to_end((source, limits))
            return known

    def keep(self, source: str, limits: Limits, image: ScriptImage | None) -> Known:
        """Keep the image of a loaded script; None if it must be loaded each time. The last one is kept in any case."""
        known = Known(image)
        with self._lock:
            before = self._images.pop((source, limits), None)  # of a thread that was faster
            self._images[source, limits] = known
            self.images_bytes += known.bytes_kept - (before.bytes_kept if before is not None else 0)
            while self.images_bytes > IMAGES_BYTES_MAX and len(self._images) > 1:
                self.images_bytes -= self._images.popitem(last=False)[1].bytes_kept
        return known

    def take(self) -> Instance:
        """An instance with the memory of the prelude."""
        with self._lock:
            # The one that was used last, whose memory is still in the caches.
            if self._idle:
                return self._idle.pop()
        instance = Instance(self._module)
        self.prelude.restore(instance, is_new=True)
        return instance

    def give_back(self, instance: Instance) -> None:
        """Restore the memory of an instance that a guest has used, and keep it for the next one."""
        if not wasm.CAN_CLEAR:
            return  # a new instance costs less than to write zeros everywhere
        self.prelude.restore(instance)
        with self._lock:
            if len(self._idle) < IDLE_MAX:
                self._idle.append(instance)


@cache
def shared_engine() -> Engine:
    """The engine of this process. The first call may take seconds, to compile it."""
    return Engine(machine_code())


def _package_file(name: str) -> bytes:
    return resources.files("keep_sandbox").joinpath(name).read_bytes()
