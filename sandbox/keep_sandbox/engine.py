"""The engine of one process: the compiled module, the images of scripts, and the idle instances."""

import threading
from collections import OrderedDict
from functools import cache
from importlib import resources
from typing import Final, NamedTuple

from keep_sandbox import wasm
from keep_sandbox.compiled import machine_code
from keep_sandbox.images import Image
from keep_sandbox.limits import SCRIPT_LINES_MAX, STACK_BYTES_MAX, Limits
from keep_sandbox.shim import Seen, ShimResult, put, seen_in
from keep_sandbox.wasm import Instance, Module

ENGINE_VERSION: Final = "0.17.0.2"
"""The version of QuickJS-ng in `engine.wasm`."""

IMAGES_MAX: Final = 64
"""Images of scripts that an engine keeps; each takes about half a megabyte."""
IDLE_MAX: Final = 16
"""Instances that an engine keeps while no guest has them."""

LINE_AFTER_SCRIPTS: Final = SCRIPT_LINES_MAX + 1
"""The line that our own code begins with: a smaller one is the author's."""


class Known(NamedTuple):
    """The image that a guest begins with."""

    image: Image
    is_loaded: bool
    """False if the script must still be loaded."""


class Engine:
    """The module, the images and the idle instances of one process. Threads may share it."""

    def __init__(self, machine_code: bytes) -> None:
        """Load a compiled module, and run the prelude once. `machine_code()` gives the product's own."""
        self._module = Module(machine_code)
        self._lock = threading.Lock()
        self._images: OrderedDict[tuple[str, Limits], Image | None] = OrderedDict()
        self._idle: list[tuple[Instance, Image]] = []
        instance = Instance(self._module)
        instance.fuel = 1 << 40
        instance.call("_initialize")
        self.seen_at: Final = instance.call("init", STACK_BYTES_MAX)
        prelude = _package_file("prelude.js")
        put(instance, prelude)
        loaded = instance.call("prelude", len(prelude), LINE_AFTER_SCRIPTS)
        assert loaded == ShimResult.LOADED, "the prelude loads"
        self.prelude: Final = Image(instance, self.seen(instance).heap_top)
        self.give_back(instance, self.prelude, is_copied=True)
        self.declare_source: Final = _package_file("declare.js")

    @property
    def image_count(self) -> int:
        """The number of images of scripts."""
        return sum(each is not None for each in self._images.values())

    def seen(self, instance: Instance) -> Seen:
        """The state that the shim shows. Hostile."""
        return seen_in(instance, self.seen_at)

    def known(self, source: str, limits: Limits) -> Known | None:
        """The image to begin with; None if the script was not loaded before."""
        with self._lock:
            key = (source, limits)
            if key not in self._images:
                return None
            self._images.move_to_end(key)
            image = self._images[key]
        return Known(image or self.prelude, is_loaded=image is not None)

    def keep(self, source: str, limits: Limits, image: Image | None) -> None:
        """Keep the image of a loaded script; None if it must be loaded each time."""
        with self._lock:
            self._images[source, limits] = image
            while len(self._images) > IMAGES_MAX:
                self._images.popitem(last=False)

    def take(self, image: Image) -> Instance:
        """An instance with the memory of this image."""
        with self._lock:
            # The one that was used last, whose memory is still in the caches; of others the one that was used first.
            place = next((at for at in reversed(range(len(self._idle))) if self._idle[at][1] is image), 0)
            instance, before = self._idle.pop(place) if self._idle else (None, None)
        if instance is None:
            instance = Instance(self._module)
            image.restore(instance, is_new=True)
        elif before is not image:
            image.restore(instance)
        return instance

    def give_back(self, instance: Instance, image: Image, *, is_copied: bool = False) -> None:
        """Restore the memory of an instance that a guest has used, and keep it for the next one.

        `is_copied`: the image was just made from it, and nothing has run since.
        """
        if not wasm.CAN_CLEAR:
            return  # a new instance costs less than to write zeros everywhere
        if is_copied:
            image.clear_rest(instance)
        else:
            image.restore(instance)
        with self._lock:
            if len(self._idle) < IDLE_MAX:
                self._idle.append((instance, image))


@cache
def shared_engine() -> Engine:
    """The engine of this process. The first call may take seconds, to compile it."""
    return Engine(machine_code())


def _package_file(name: str) -> bytes:
    return resources.files("keep_sandbox").joinpath(name).read_bytes()
