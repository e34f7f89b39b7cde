"""A guest that was taken over: WebAssembly that is not the engine, with the engine's exports, as machine code."""

from functools import cache

import wasmtime

from keep_sandbox import wasm

_MODULE = """
(module
  (memory (export "memory") 1280 1280)
  (global $stack (export "__stack_pointer") (mut i32) (i32.const 1048576))
  (func (export "_initialize"))
  (func (export "init") (param i32) (result i32) (i32.const 1048576))
  (func (export "input") (param i32) (result i32) {inbox})
  (func (export "prelude") (param i32 i32) (result i32)
    ;; heap_top, so that an image is made
    (i32.store (i32.const 1048584) (i32.const 3300000))
    (i32.const 3))
  (func (export "load") (result i32) (i32.const 3))
  (func $begin (export "begin") (result i32) {begin})
  (func (export "settle") (param i32 i32) (result i32) {settle})
  (func (export "declare") (param i32 i32) (result i32) (call $begin))
  (func (export "where") (result i32) {where})
  {more}
)
"""
SEEN = 1048576
"""Where this guest keeps what the shim shows: oom, stopped, heap_top, out_at, out_used."""


@cache
def hostile(
    begin: str, *, settle: str = "(i32.const 1)", where: str = "(i32.const 0)", more: str = "", inbox: str = ""
) -> bytes:
    """The machine code of such a guest. `begin` is what it does when a handler is called."""
    text = _MODULE.format(begin=begin, settle=settle, where=where, more=more, inbox=inbox or "(i32.const 2097152)")
    return wasm.compiled(bytes(wasmtime.wat2wasm(text)))


def outbox(at: int, used: int) -> str:
    """Instructions that show an outbox at this place."""
    return (
        f"(i32.store (i32.const {SEEN + 12}) (i32.const {at})) (i32.store (i32.const {SEEN + 16}) (i32.const {used}))"
    )


def said(*entries: tuple[int, int, bytes, bytes, bytes], at: int = 3_146_000) -> tuple[str, str]:
    """Instructions that say these entries, and the data that they need, at this place."""
    data = b""
    for kind, number, first, second, third in entries:
        words = (kind, number, len(first), len(second), len(third))
        data += b"".join(word.to_bytes(4, "little") for word in words) + first + second + third
        data += bytes(-len(data) % 8)
    text = "".join(f"\\{byte:02x}" for byte in data)
    # A data segment is written once; what it says is copied by the image.
    return outbox(at, len(data)), f'(data (i32.const {at}) "{text}")'
