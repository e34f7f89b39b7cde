// JSON text of plain values: the short way, in C, for what the prelude's `textOf` would write.
#ifndef KEEP_PLAIN_H
#define KEEP_PLAIN_H

#include <stdint.h>

#include "quickjs.h"

// Capture the intrinsics that a plain value has, before any script runs. 0, or -1 if there is no memory for it.
int plain_init(JSContext *ctx);

// Release what `plain_init` captured.
void plain_free(JSContext *ctx);

// JSON text of a value that is plainly JSON, as a JS string; JS_UNDEFINED if it is not plain. Never an exception.
//
// The text has at most `room` bytes of UTF-8, and at most `depth` objects and arrays inside each other.
JSValue plain_text(JSContext *ctx, JSValueConst value, uint32_t room, uint32_t depth);

#endif
