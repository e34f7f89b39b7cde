"""WebAssembly behind a narrow interface: compile a module, load it, call its exports. Knows nothing of JavaScript.

No other module knows wasmtime. Its C interface is called directly: a call through the classes of the package takes five
times as long, and an invocation makes about ten.
"""

import ctypes
import mmap
import sys
from collections.abc import Callable
from importlib import metadata
from typing import Any, Final, TypeVar

import wasmtime
from wasmtime import TrapCode as TrapCode
from wasmtime import _ffi as ffi

WASMTIME_VERSION: Final = metadata.version("wasmtime")

_STACK_BYTES: Final = (4 if sys.platform != "win32" else 2) << 20
"""Machine stack that the guest may use. It must be less than a thread has."""

_ARGUMENTS_MAX: Final = 8
_INT32: Final = 1 << 31

SETTINGS: Final = "fuel,nan,nocow,nothreads,v1"
"""Names the settings below: a module that was compiled with others does not load."""


WASMTIME_MAJOR: Final = "50"
"""The tested version. The C interface may change with the next one."""


class EngineUnsuitable(Exception):
    """The installed wasmtime is not one that this version was tested with."""


def check_installation() -> None:
    """Raise `EngineUnsuitable` unless a tested wasmtime is installed."""
    found = metadata.version("wasmtime")
    if found.partition(".")[0] != WASMTIME_MAJOR:
        raise EngineUnsuitable(f"wasmtime {WASMTIME_MAJOR} is needed, found {found}: reinstall keep-actors")


class Trapped(Exception):
    """The guest trapped. `code` is None for a trap that wasmtime does not name."""

    def __init__(self, code: TrapCode | None) -> None:
        super().__init__(code.name if code is not None else "a trap without a code")
        self.code = code


def _config(*, compiles: bool) -> wasmtime.Config:
    config = wasmtime.Config()
    config.consume_fuel = True
    # The same bits on every machine.
    config.cranelift_nan_canonicalization = True
    config.wasm_threads = False
    # Memory has a fixed size and place. Copy-on-write would need a descriptor, which a jailed worker does not have.
    config.memory_may_move = False
    config.memory_init_cow = False
    # Threads of a compiler would stay, and a process that forks must have only one.
    config.parallel_compilation = compiles
    # A value that is only checked: it must exceed the stack of the guest.
    ffi.wasmtime_config_async_stack_size_set(config.ptr(), _STACK_BYTES + (1 << 20))
    config.max_wasm_stack = _STACK_BYTES
    if sys.platform == "darwin":
        # A thread that handles exceptions of the whole process does not survive a fork.
        config.macos_use_mach_ports = False
    return config


def compiled(wasm: bytes) -> bytes:
    """Compile a module to machine code. Takes seconds, and leaves threads behind: do it in a process of its own."""
    return bytes(wasmtime.Module(wasmtime.Engine(_config(compiles=True)), wasm).serialize())


def is_loadable(machine_code: bytes) -> bool:
    """Return True if this machine and this wasmtime can load the machine code."""
    try:
        Module(machine_code)
    except wasmtime.WasmtimeError:
        return False
    return True


class Module:
    """A compiled module. It must come from `compiled`: machine code is not checked."""

    def __init__(self, machine_code: bytes) -> None:
        self.engine = wasmtime.Engine(_config(compiles=False))
        self.module = wasmtime.Module.deserialize(self.engine, machine_code)
        self.functions: Final = [each.name for each in self.module.exports if isinstance(each.type, wasmtime.FuncType)]


class Instance:
    """One instance with a memory of its own. Used by one thread at a time."""

    def __init__(self, module: Module) -> None:
        self._store = wasmtime.Store(module.engine)
        self._context: Any = self._store._context()
        self.fuel = _INT32
        instance = wasmtime.Instance(self._store, module.module, [])
        exports = instance.exports(self._store)
        # The exports are kept: the C interface below points into them.
        self._exports = exports
        self._functions: dict[str, Any] = {
            name: ctypes.byref(_expect(wasmtime.Func, exports[name])._func) for name in module.functions
        }
        memory = _expect(wasmtime.Memory, exports["memory"])
        self.size: Final = memory.data_len(self._store)
        self.address: Final = ctypes.addressof(memory.data_ptr(self._store).contents)
        self.memory: Final = memoryview((ctypes.c_ubyte * self.size).from_address(self.address)).cast("B")
        stack = _expect(wasmtime.Global, exports["__stack_pointer"])
        self._stack = ctypes.byref(stack._global)
        self._stack_top = ffi.wasmtime_val_t()
        self._stack_top.kind = ffi.WASMTIME_I32
        self.stack_top: Final[int] = stack.value(self._store)
        """The end of the stack, which grows down to address 0."""
        self._stack_top.of.i32 = self.stack_top
        self._stack_now = ffi.wasmtime_val_t()
        self._values = (ffi.wasmtime_val_raw_t * _ARGUMENTS_MAX)()
        self._trap = ctypes.POINTER(ffi.wasm_trap_t)()

    @property
    def fuel(self) -> int:
        """The fuel that is left."""
        left = ctypes.c_uint64()
        ffi.wasmtime_context_get_fuel(self._context, ctypes.byref(left))
        return left.value

    @fuel.setter
    def fuel(self, units: int) -> None:
        ffi.wasmtime_context_set_fuel(self._context, units)

    @property
    def stack_pointer(self) -> int:
        """The stack pointer of the guest, as an address in its memory."""
        ffi.wasmtime_global_get(self._context, self._stack, ctypes.byref(self._stack_now))
        return int(self._stack_now.of.i32) & 0xFFFFFFFF

    def reset_stack(self) -> None:
        """Set the stack pointer to its first value. After a trap it stays where it was."""
        ffi.wasmtime_global_set(self._context, self._stack, ctypes.byref(self._stack_top))

    def call(self, name: str, *arguments: int) -> int:
        """Call an export with 32-bit arguments. Raises `Trapped`."""
        values = self._values
        for place, value in enumerate(arguments):
            values[place].i32 = value if value < _INT32 else value - 2 * _INT32
        trap = self._trap
        error = _call(self._context, self._functions[name], values, _ARGUMENTS_MAX, ctypes.byref(trap))
        if error:
            raise wasmtime.WasmtimeError._from_ptr(error)
        if bool(trap):
            self._trap = ctypes.POINTER(ffi.wasm_trap_t)()
            raise Trapped(_code_of(trap))
        return int(values[0].i32)


T = TypeVar("T")
_call: Final[Callable[..., Any]] = ffi.dll.wasmtime_func_call_unchecked


def _code_of(trap: Any) -> TrapCode | None:
    code = ctypes.c_uint8()
    is_known = ffi.wasmtime_trap_code(trap, ctypes.byref(code))
    ffi.wasm_trap_delete(trap)
    try:
        return TrapCode(code.value) if is_known else None
    except ValueError:
        return None


def _expect(kind: type[T], found: object) -> T:
    assert isinstance(found, kind), f"the module does not export this {kind.__name__}"
    return found


# On Linux a page that is given back reads as zeros, which costs less than to write them.

CAN_CLEAR: Final = sys.platform == "linux"
"""True if `clear` works on this system."""

_libc = ctypes.CDLL(None, use_errno=True) if CAN_CLEAR else None


def clear(address: int, size: int) -> None:
    """Make whole pages zero. They must be private memory of this process."""
    assert _libc is not None, "asked only where it works"
    if size and _libc.madvise(ctypes.c_void_p(address), ctypes.c_size_t(size), mmap.MADV_DONTNEED) != 0:
        raise OSError(ctypes.get_errno(), "madvise")
