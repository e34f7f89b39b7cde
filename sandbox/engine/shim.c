// The surface of the engine: QuickJS-ng behind a few exports, without a single import.
//
// The host copies an image over the linear memory, writes its text into the inbox, calls one export, and reads the
// outbox when the call has returned or trapped. A script cannot run after it has ended: the shim traps instead, and
// sets `seen.stopped` first, so that the host can tell this trap from all others.
#include <malloc.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "plain.h"
#include "quickjs.h"

#define EXPORT(name) __attribute__((export_name(name)))

// --- the system, as libc sees it: no clock, no files, no entropy ----------------------------------------------------

enum { WASI_BADF = 8 };

int32_t __imported_wasi_snapshot_preview1_clock_time_get(int32_t id, int64_t precision, int32_t at) {
  *(uint64_t *)(uintptr_t)at = 0;
  return 0;
}
int32_t __imported_wasi_snapshot_preview1_fd_close(int32_t fd) { return WASI_BADF; }
int32_t __imported_wasi_snapshot_preview1_fd_fdstat_get(int32_t fd, int32_t at) { return WASI_BADF; }
int32_t __imported_wasi_snapshot_preview1_fd_seek(int32_t fd, int64_t offset, int32_t whence, int32_t at) {
  return WASI_BADF;
}
int32_t __imported_wasi_snapshot_preview1_fd_write(int32_t fd, int32_t vectors, int32_t count, int32_t at) {
  return WASI_BADF;
}

// --- state that the host reads --------------------------------------------------------------------------------------

// Read by the host after every call. Its order is known to wasm.py.
static struct {
  uint32_t oom;       // 1 once the heap limit was reached
  uint32_t stopped;   // 1 once the shim has stopped the script by a trap
  uint32_t heap_top;  // the end of the highest block that was ever allocated
  uint32_t out_at;    // the outbox
  uint32_t out_used;
} seen;

static JSRuntime *rt;
static JSContext *ctx;
static JSValue enter;  // the prelude's entry point
static uint32_t has_ended, is_loaded, mutation_ends, calls_left, open_requests;

static _Noreturn void stop(void) {
  has_ended = 1;
  seen.stopped = 1;
  __builtin_trap();
}

// --- the heap: its limit is kept here, so that reaching it is known for certain -------------------------------------

enum { BLOCK_OVERHEAD = 8, PAST_A_BLOCK = 64 };  // what the allocator writes before and after a block, at most

static uint32_t heap_used, heap_max;

static uint32_t size_of(const void *block) { return malloc_usable_size((void *)block) + BLOCK_OVERHEAD; }

static int is_too_much(size_t more) {
  if (more <= heap_max && heap_used <= heap_max - more) return 0;
  seen.oom = 1;
  return 1;
}

static void *counted(void *block) {
  if (!block) {
    seen.oom = 1;
    return NULL;
  }
  heap_used += size_of(block);
  uint32_t end = (uint32_t)(uintptr_t)block + size_of(block) + PAST_A_BLOCK;
  if (end > seen.heap_top) seen.heap_top = end;
  return block;
}

static void *heap_malloc(void *opaque, size_t size) { return is_too_much(size) ? NULL : counted(malloc(size)); }

static void *heap_calloc(void *opaque, size_t count, size_t size) {
  size_t all;
  if (__builtin_mul_overflow(count, size, &all) || is_too_much(all)) {
    seen.oom = 1;
    return NULL;
  }
  return counted(calloc(count, size));
}

static void heap_free(void *opaque, void *block) {
  if (block) heap_used -= size_of(block);
  free(block);
}

static void *heap_realloc(void *opaque, void *block, size_t size) {
  if (!block) return heap_malloc(opaque, size);
  if (size == 0) {
    heap_free(opaque, block);
    return NULL;
  }
  uint32_t before = size_of(block);
  if (size > before && is_too_much(size - before)) return NULL;
  void *moved = realloc(block, size);
  if (!moved) {
    seen.oom = 1;
    return NULL;
  }
  heap_used -= before;
  return counted(moved);
}

static size_t heap_usable(const void *block) { return malloc_usable_size((void *)block); }

static const JSMallocFunctions heap = {heap_calloc, heap_malloc, heap_free, heap_realloc, heap_usable};

// --- the outbox: entries of five words and three texts, padded to eight bytes ---------------------------------------

enum { SAY_REQUEST = 1, SAY_LOG, SAY_DONE, SAY_FAIL, SAY_EXCEPTION, SAY_CALL_LIMIT };

typedef struct {
  const char *at;
  size_t length;
} Text;

static uint8_t *outbox;
static uint32_t outbox_size;

static int say(uint32_t kind, uint32_t number, Text a, Text b, Text c) {
  size_t needed = (20 + a.length + b.length + c.length + 7) & ~(size_t)7;
  if (outbox_size - seen.out_used < needed) {
    size_t size = outbox_size ? outbox_size : 4096;
    while (size - seen.out_used < needed) size *= 2;
    uint8_t *larger = heap_realloc(NULL, outbox, size);
    if (!larger) return -1;
    outbox = larger;
    outbox_size = size;
    seen.out_at = (uint32_t)(uintptr_t)outbox;
  }
  uint8_t *to = outbox + seen.out_used;
  uint32_t head[5] = {kind, number, a.length, b.length, c.length};
  memcpy(to, head, sizeof head);
  to += sizeof head;
  if (a.length) memcpy(to, a.at, a.length);
  if (b.length) memcpy(to + a.length, b.at, b.length);
  if (c.length) memcpy(to + a.length + b.length, c.at, c.length);
  seen.out_used += needed;
  return 0;
}

static const Text NOTHING = {"", 0};

// --- what the prelude may call --------------------------------------------------------------------------------------

static int text_of(JSValueConst value, Text *text) {
  text->at = JS_ToCStringLen(ctx, &text->length, value);
  return text->at ? 0 : -1;
}

static void drop(Text text) {
  if (text.at) JS_FreeCString(ctx, text.at);
}

static JSValue host_request(JSContext *c, JSValueConst self, int argc, JSValueConst *argv) {
  if (has_ended) stop();
  if (calls_left == 0) {
    say(SAY_CALL_LIMIT, 0, NOTHING, NOTHING, NOTHING);
    stop();
  }
  int32_t id;
  Text kind = {0}, name = {0}, params = {0};
  JSValue answer = JS_EXCEPTION;
  if (JS_ToInt32(c, &id, argv[0]) == 0 && text_of(argv[1], &kind) == 0 && text_of(argv[2], &name) == 0 &&
      text_of(argv[3], &params) == 0) {
    calls_left--;
    if (say(SAY_REQUEST, id, kind, name, params) < 0) {
      JS_ThrowOutOfMemory(c);
    } else {
      if (mutation_ends && strcmp(kind.at, "mutation") == 0) stop();
      open_requests++;
      answer = JS_UNDEFINED;
    }
  }
  drop(kind);
  drop(name);
  drop(params);
  return answer;
}

static JSValue say_text(JSContext *c, uint32_t kind, uint32_t number, JSValueConst value) {
  Text text;
  if (text_of(value, &text) < 0) return JS_EXCEPTION;
  int failed = say(kind, number, text, NOTHING, NOTHING);
  drop(text);
  return failed ? JS_ThrowOutOfMemory(c) : JS_UNDEFINED;
}

static JSValue host_log(JSContext *c, JSValueConst self, int argc, JSValueConst *argv) {
  if (has_ended) stop();
  return say_text(c, SAY_LOG, 0, argv[0]);
}

// No job is taken after `done` and `fail`, so nothing of the script runs any more.
static JSValue host_done(JSContext *c, JSValueConst self, int argc, JSValueConst *argv) {
  if (has_ended) stop();
  JSValue said = say_text(c, SAY_DONE, JS_ToBool(c, argv[1]) == 1, argv[0]);
  if (!JS_IsException(said)) has_ended = 1;
  return said;
}

static JSValue host_fail(JSContext *c, JSValueConst self, int argc, JSValueConst *argv) {
  if (has_ended) stop();
  JSValue said = say_text(c, SAY_FAIL, 0, argv[0]);
  if (!JS_IsException(said)) has_ended = 1;
  return said;
}

static JSValue host_loaded(JSContext *c, JSValueConst self, int argc, JSValueConst *argv) {
  is_loaded = 1;
  return JS_UNDEFINED;
}

static JSValue host_plain(JSContext *c, JSValueConst self, int argc, JSValueConst *argv) {
  uint32_t room, depth;
  if (JS_ToUint32(c, &room, argv[1]) < 0 || JS_ToUint32(c, &depth, argv[2]) < 0) return JS_EXCEPTION;
  return plain_text(c, argv[0], room, depth);
}

static const JSCFunctionListEntry host_functions[] = {
    JS_CFUNC_DEF("request", 4, host_request), JS_CFUNC_DEF("log", 1, host_log),
    JS_CFUNC_DEF("done", 2, host_done),       JS_CFUNC_DEF("fail", 1, host_fail),
    JS_CFUNC_DEF("loaded", 0, host_loaded),   JS_CFUNC_DEF("plain", 3, host_plain),
};

// --- running --------------------------------------------------------------------------------------------------------

// What a call returns to the host.
enum { FAILED = -1, ENDED = 0, WAITS = 1, STUCK = 2, LOADED = 3, LOADED_TOUCHED = 4 };

// The pending exception: its text and its stack.
static int raised(void) {
  JSValue error = JS_GetException(ctx);
  JSValue stack = JS_IsObject(error) ? JS_GetPropertyStr(ctx, error, "stack") : JS_UNDEFINED;
  Text message = {0}, trace = {0};
  if (text_of(error, &message) < 0) JS_FreeValue(ctx, JS_GetException(ctx));
  if (JS_IsString(stack)) text_of(stack, &trace);
  say(SAY_EXCEPTION, 0, message.at ? message : (Text){"null", 4}, trace.at ? trace : NOTHING, NOTHING);
  drop(message);
  drop(trace);
  JS_FreeValue(ctx, stack);
  JS_FreeValue(ctx, error);
  return FAILED;
}

static int run_jobs(const uint32_t *until) {
  JSContext *any;
  while (!has_ended && !(until && *until)) {
    int done = JS_ExecutePendingJob(rt, &any);
    if (done < 0) return raised();
    if (done == 0) return 0;
  }
  return 0;
}

enum { ARGUMENTS_MAX = 5 };

// Call the entry point. Takes the arguments.
static int call(const char *what, int count, const JSValue *given, int32_t *answer) {
  JSValue all[1 + ARGUMENTS_MAX] = {JS_NewString(ctx, what)};
  for (int i = 0; i < count; i++) all[i + 1] = given[i];
  JSValue result = JS_EXCEPTION;
  int is_whole = 1;
  for (int i = 0; i <= count; i++) is_whole &= !JS_IsException(all[i]);
  if (is_whole) result = JS_Call(ctx, enter, JS_UNDEFINED, count + 1, (JSValueConst *)all);
  for (int i = 0; i <= count; i++) JS_FreeValue(ctx, all[i]);
  if (JS_IsException(result)) return raised();
  if (answer && JS_ToInt32(ctx, answer, result) < 0) return raised();
  JS_FreeValue(ctx, result);
  return 0;
}

static int go_on(void) {
  if (run_jobs(NULL) < 0) return FAILED;
  if (!has_ended && open_requests == 0 && call("stuck", 0, NULL, NULL) < 0) return FAILED;
  return has_ended ? ENDED : open_requests ? WAITS : STUCK;
}

// --- the inbox ------------------------------------------------------------------------------------------------------

static uint8_t *inbox;
static uint32_t inbox_size;

static JSValue text_at(uint32_t at, uint32_t length) { return JS_NewStringLen(ctx, (char *)inbox + at, length); }

// Room for this many bytes, and a NUL after them; 0 if there is none.
EXPORT("input") uint8_t *input(uint32_t length) {
  if (inbox_size <= length) {
    heap_free(NULL, inbox);
    inbox_size = (length + 4096) & ~4095u;
    inbox = heap_malloc(NULL, inbox_size);
    if (!inbox) inbox_size = 0;
  }
  if (inbox) inbox[length] = 0;
  return inbox;
}

// --- exports, in the order in which they are called -----------------------------------------------------------------

// The limits of what the host calls next.
static void limit(uint32_t heap_bytes, uint32_t stack_bytes) {
  heap_max = heap_bytes;
  JS_SetMaxStackSize(rt, stack_bytes);
}

EXPORT("init") void *init(uint32_t stack_bytes) {
  heap_max = UINT32_MAX;
  rt = JS_NewRuntime2(&heap, NULL);
  limit(UINT32_MAX, stack_bytes);
  ctx = JS_NewContext(rt);
  if (plain_init(ctx) < 0) __builtin_trap();
  JSValue host = JS_NewObject(ctx);
  JS_SetPropertyFunctionList(ctx, host, host_functions, sizeof host_functions / sizeof host_functions[0]);
  JSValue global = JS_GetGlobalObject(ctx);
  JS_SetPropertyStr(ctx, global, "__host", host);
  JS_FreeValue(ctx, global);
  return &seen;
}

static JSValue evaluated(uint32_t at, uint32_t length, uint32_t line, int flags) {
  JSEvalOptions options = {
      .version = JS_EVAL_OPTIONS_VERSION, .eval_flags = flags, .filename = "<input>", .line_num = line};
  return JS_Eval2(ctx, (char *)inbox + at, length, &options);
}

// The prelude is in the inbox. Its value is the entry point.
EXPORT("prelude") int prelude(uint32_t length, uint32_t line) {
  enter = evaluated(0, length, line, JS_EVAL_TYPE_GLOBAL);
  if (JS_IsException(enter)) return raised();
  JS_RunGC(rt);
  return LOADED;
}

// Load a script. The inbox has this head, then the limits and the source. The time and the seed are those that the top
// level of the script sees.
EXPORT("load") int load(void) {
  struct {
    uint64_t now;
    uint32_t seed, heap, stack, limits, source;
  } head;
  memcpy(&head, inbox, sizeof head);
  limit(head.heap, head.stack);
  JSValue given[3] = {text_at(sizeof head, head.limits), JS_NewInt64(ctx, head.now), JS_NewInt32(ctx, head.seed)};
  if (call("instant", 3, given, NULL) < 0) return FAILED;
  JSValue module = evaluated(sizeof head + head.limits, head.source, 1, JS_EVAL_TYPE_MODULE);
  if (JS_IsException(module)) return raised();
  JS_FreeValue(ctx, module);
  if (call("load", 0, NULL, NULL) < 0 || run_jobs(&is_loaded) < 0) return FAILED;
  if (has_ended) return ENDED;
  if (!is_loaded) return STUCK;
  int32_t is_touched;
  if (call("touched", 0, NULL, &is_touched) < 0) return FAILED;
  JS_RunGC(rt);
  return is_touched ? LOADED_TOUCHED : LOADED;
}

// Run a handler of a loaded script. The inbox has this head, then the three texts.
EXPORT("begin") int begin(void) {
  struct {
    uint64_t now;
    uint32_t seed, heap, stack, calls, mutation_ends, capabilities, address, args;
  } head;
  memcpy(&head, inbox, sizeof head);
  limit(head.heap, head.stack);
  calls_left = head.calls;
  mutation_ends = head.mutation_ends;
  uint32_t at = sizeof head;
  JSValue instant[3] = {JS_NewString(ctx, ""), JS_NewInt64(ctx, head.now), JS_NewInt32(ctx, head.seed)};
  JSValue given[3] = {text_at(at, head.capabilities), text_at(at + head.capabilities, head.address),
                      text_at(at + head.capabilities + head.address, head.args)};
  if (call("instant", 3, instant, NULL) < 0 || call("start", 3, given, NULL) < 0) return FAILED;
  return go_on();
}

// Report the declaration of a loaded script with the function that is in the inbox.
EXPORT("declare") int declare(uint32_t length, uint32_t line) {
  JSValue describe = evaluated(0, length, line, JS_EVAL_TYPE_GLOBAL);
  if (JS_IsException(describe)) return raised();
  if (call("declare", 1, &describe, NULL) < 0) return FAILED;
  return go_on();
}

// The answer to a request is in the inbox.
EXPORT("settle") int settle(uint32_t id, uint32_t length) {
  open_requests--;
  JSValue given[2] = {JS_NewInt32(ctx, id), text_at(0, length)};
  if (call("settle", 2, given, NULL) < 0) return FAILED;
  return go_on();
}

// After a trap: the stack of the script at this moment, if it can still be told. Nothing else is called afterwards.
EXPORT("where") int where(void) {
  heap_max = UINT32_MAX;
  JS_SetGCThreshold(rt, SIZE_MAX);
  has_ended = 0;
  return call("where", 0, NULL, NULL);
}
