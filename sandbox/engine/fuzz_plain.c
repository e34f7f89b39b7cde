// A native program around plain.c, for AddressSanitizer and UBSan: does plain_text say what the judge (judge.js) says?
//
//   fuzz_plain JUDGE < INPUTS
//
// An input is a line `ROOM DEPTH FAILURES LENGTH` and so many bytes of a JavaScript expression; the answer to it is a line
// `plain LENGTH` with the text after it, `other 0` for a value that is not plain, `threw 0` for no value. With FAILURES,
// allocations fail, each of them once: by itself, and with all that follow. The program aborts as soon as something is wrong.
#include <malloc.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "plain.h"

enum { STACK_BYTES = 1 << 20, HEAP_BYTES = 8 << 20, POLLS = 1000, FAILURES_MAX = 400, ONE_INPUT_S = 50, NEVER = -1 };

static _Noreturn void wrong(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  fprintf(stderr, "WRONG: ");
  vfprintf(stderr, format, arguments);
  fprintf(stderr, "\n");
  va_end(arguments);
  abort();
}

// --- an allocator that counts, and fails when it is told to ----------------------------------------------------------

static struct {
  long blocks, bytes;  // in use
  long made;           // since the beginning
  long fail_at;        // the number of the one that fails
  bool and_after;
} heap;

static bool refused(size_t bytes) {
  long number = heap.made++;
  if (heap.fail_at != NEVER && (number == heap.fail_at || (heap.and_after && number > heap.fail_at))) return true;
  return bytes > (size_t)(HEAP_BYTES - heap.bytes);
}

static void *counted(void *block) {
  if (block == NULL) wrong("malloc failed");
  heap.blocks++;
  heap.bytes += (long)malloc_usable_size(block);
  return block;
}

static void *heap_calloc(void *opaque, size_t count, size_t size) {
  (void)opaque;
  return count * size == 0 || refused(count * size) ? NULL : counted(calloc(count, size));
}

static void *heap_malloc(void *opaque, size_t size) {
  (void)opaque;
  return size == 0 || refused(size) ? NULL : counted(malloc(size));
}

static void heap_free(void *opaque, void *block) {
  (void)opaque;
  if (block == NULL) return;
  heap.blocks--;
  heap.bytes -= (long)malloc_usable_size(block);
  free(block);
}

static void *heap_realloc(void *opaque, void *block, size_t size) {
  if (block == NULL) return heap_malloc(opaque, size);
  if (size == 0) {
    heap_free(opaque, block);
    return NULL;
  }
  if (refused(size)) return NULL;
  void *moved = malloc(size);  // always moved, so that a pointer to the old place is noticed
  size_t before = malloc_usable_size(block);
  counted(moved);
  memcpy(moved, block, before < size ? before : size);
  heap_free(opaque, block);
  return moved;
}

static size_t heap_size(const void *block) { return malloc_usable_size((void *)block); }

static const JSMallocFunctions heap_functions = {heap_calloc, heap_malloc, heap_free, heap_realloc, heap_size};

// --- what the script and the judge can call --------------------------------------------------------------------------

static long hits;

// The script calls it in every getter, trap, toJSON and toString that it can think of.
static JSValue hit(JSContext *ctx, JSValueConst self, int argc, JSValueConst *argv) {
  (void)ctx, (void)self, (void)argc, (void)argv;
  hits++;
  return JS_UNDEFINED;
}

static JSValue kind_of(JSContext *ctx, JSValueConst self, int argc, JSValueConst *argv) {
  (void)self, (void)argc;
  JSValue ordinary = JS_NewObject(ctx);
  bool is_ordinary = JS_GetClassID(argv[0]) == JS_GetClassID(ordinary) && !JS_IsProxy(argv[0]);
  JS_FreeValue(ctx, ordinary);
  return JS_NewString(ctx, JS_IsArray(argv[0]) ? "array" : is_ordinary ? "object" : "other");
}

static JSValue bytes_of(JSContext *ctx, JSValueConst self, int argc, JSValueConst *argv) {
  (void)self, (void)argc;
  size_t length;
  const char *bytes = JS_ToCStringLen(ctx, &length, argv[0]);
  if (bytes == NULL) return JS_EXCEPTION;
  JS_FreeCString(ctx, bytes);
  return JS_NewInt64(ctx, (int64_t)length);
}

static long polls;

static int poll(JSRuntime *rt, void *opaque) {
  (void)rt, (void)opaque;
  return ++polls > POLLS;
}

static void define(JSContext *ctx, JSValueConst global, const char *name, JSCFunction *function) {
  JS_SetPropertyStr(ctx, global, name, JS_NewCFunction(ctx, function, name, 1));
}

// --- one input -------------------------------------------------------------------------------------------------------

typedef struct {
  JSRuntime *rt;
  JSContext *ctx;
  JSValue judge, value;
  uint32_t depth;
} Trial;

// Twice: first with so little stack that the engine refuses to call any function, of the script or of its own.
static JSValue text_of(const Trial *trial, uint32_t room) {
  long before = hits;
  JS_SetMaxStackSize(trial->rt, 1);
  JSValue first = plain_text(trial->ctx, trial->value, room, trial->depth);
  JS_SetMaxStackSize(trial->rt, STACK_BYTES);
  JSValue second = plain_text(trial->ctx, trial->value, room, trial->depth);
  if (hits != before) wrong("code of the script has run");
  if (JS_HasException(trial->ctx)) wrong("an exception was left behind");
  if (!JS_IsStrictEqual(trial->ctx, first, second)) wrong("the text depends on a call");
  JS_FreeValue(trial->ctx, first);
  return second;
}

// The text, after the judge had no objection. Its length in bytes, or -1.
static JSValue judged(const Trial *trial, uint32_t room, int64_t *length) {
  JSValue text = text_of(trial, room);
  JSValue arguments[] = {trial->value, JS_NewUint32(trial->ctx, room), JS_NewUint32(trial->ctx, trial->depth)};
  JSValue expected = JS_Call(trial->ctx, trial->judge, JS_UNDEFINED, 3, arguments);
  *length = -1;
  if (JS_IsException(expected)) {  // too large for the judge, in time or in memory
    JS_FreeValue(trial->ctx, JS_GetException(trial->ctx));
    JS_FreeValue(trial->ctx, text);
    return JS_UNDEFINED;
  }
  if (!JS_IsStrictEqual(trial->ctx, text, expected)) {
    const char *said = JS_ToCString(trial->ctx, text), *right = JS_ToCString(trial->ctx, expected);
    wrong("room %u: plain_text says %.2000s, the judge says %.2000s", room, said, right);
  }
  JS_FreeValue(trial->ctx, expected);
  if (JS_IsString(text)) {
    size_t bytes;
    JS_FreeCString(trial->ctx, JS_ToCStringLen(trial->ctx, &bytes, text));
    if (bytes > room) wrong("%zu bytes in a room of %u", bytes, room);
    *length = (int64_t)bytes;
  } else if (!JS_IsUndefined(text)) {
    wrong("neither text nor undefined");
  }
  return text;
}

static void fail_everywhere(const Trial *trial, uint32_t room, JSValueConst text) {
  long first = heap.made, before = heap.blocks;
  JS_FreeValue(trial->ctx, plain_text(trial->ctx, trial->value, room, trial->depth));
  long count = heap.made - first, stride = count / FAILURES_MAX + 1;
  for (long i = 0; i < 2 * count; i += stride) {
    long hits_before = hits;
    heap.and_after = i >= count;
    heap.fail_at = heap.made + i % count;
    JSValue found = plain_text(trial->ctx, trial->value, room, trial->depth);
    heap.fail_at = NEVER;
    if (!JS_IsUndefined(found) && !JS_IsStrictEqual(trial->ctx, found, text)) wrong("half a text");
    if (JS_HasException(trial->ctx)) wrong("an exception was left behind");
    if (hits != hits_before) wrong("code of the script has run");
    JS_FreeValue(trial->ctx, found);
    if (heap.blocks != before) wrong("%ld blocks, then %ld: lost one", before, heap.blocks);
  }
}

static JSValue value_of(JSContext *ctx, const char *source, size_t length) {
  polls = 0;
  JSValue value = JS_Eval(ctx, source, length, "<input>", JS_EVAL_TYPE_GLOBAL);
  polls = 0;
  if (JS_IsException(value)) JS_FreeValue(ctx, JS_GetException(ctx));
  return value;
}

static void answer(JSContext *ctx, JSValueConst text, int64_t length) {
  if (length < 0) {
    printf("other 0\n");
  } else {
    const char *bytes = JS_ToCString(ctx, text);
    printf("plain %lld\n", (long long)length);
    fwrite(bytes, 1, (size_t)length, stdout);
    JS_FreeCString(ctx, bytes);
  }
}

static void try_one(const char *judge, uint32_t room, uint32_t depth, bool failures, const char *source, size_t length) {
  heap.fail_at = NEVER;
  JSRuntime *rt = JS_NewRuntime2(&heap_functions, NULL);
  JSContext *ctx = JS_NewContext(rt);
  JS_SetMaxStackSize(rt, STACK_BYTES);
  JS_SetInterruptHandler(rt, poll, NULL);
  JSValue global = JS_GetGlobalObject(ctx);
  define(ctx, global, "hit", hit);
  define(ctx, global, "kindOf", kind_of);
  define(ctx, global, "bytesOf", bytes_of);
  JS_FreeValue(ctx, global);
  if (plain_init(ctx) < 0) wrong("plain_init");
  Trial trial = {rt, ctx, value_of(ctx, judge, strlen(judge)), JS_UNDEFINED, depth};
  if (JS_IsException(trial.judge)) wrong("the judge cannot be evaluated");
  trial.value = value_of(ctx, source, length);
  if (JS_IsException(trial.value)) {
    printf("threw 0\n");
  } else {
    int64_t bytes, fewer;
    JSValue text = judged(&trial, room, &bytes);
    if (bytes > 0) JS_FreeValue(ctx, judged(&trial, (uint32_t)bytes, &fewer));
    if (bytes > 0) JS_FreeValue(ctx, judged(&trial, (uint32_t)bytes - 1, &fewer));
    if (bytes > 0 && fewer != -1) wrong("one byte more than there was room for");
    if (failures) fail_everywhere(&trial, room, text);
    answer(ctx, text, bytes);
    JS_FreeValue(ctx, text);
  }
  fflush(stdout);
  JS_FreeValue(ctx, trial.value);
  JS_FreeValue(ctx, trial.judge);
  plain_free(ctx);
  JS_FreeContext(ctx);
  JS_FreeRuntime(rt);
  // Where an allocation failed, the engine itself may forget to release a string (JS_ToCStringLen2 does).
  if (heap.blocks != 0 && !failures) wrong("%ld blocks were never freed", heap.blocks);
  heap.blocks = heap.bytes = 0;
}

static char *read_file(const char *path) {
  FILE *file = fopen(path, "rb");
  if (file == NULL || fseek(file, 0, SEEK_END) != 0) wrong("cannot read %s", path);
  long length = ftell(file);
  rewind(file);
  char *text = calloc(1, (size_t)length + 1);
  if (text == NULL || fread(text, 1, (size_t)length, file) != (size_t)length) wrong("cannot read %s", path);
  fclose(file);
  return text;
}

int main(int argc, char **argv) {
  if (argc != 2) wrong("usage: fuzz_plain JUDGE < INPUTS");
  char *judge = read_file(argv[1]);
  unsigned room, depth, failures, length;
  while (scanf("%u %u %u %u", &room, &depth, &failures, &length) == 4) {
    char *source = calloc(1, (size_t)length + 1);  // the engine wants a NUL at the end
    if (source == NULL || getchar() != '\n' || fread(source, 1, length, stdin) != length) wrong("half an input");
    alarm(ONE_INPUT_S);  // what takes longer is wrong too
    try_one(judge, room, depth, failures != 0, source, length);
    free(source);
  }
  free(judge);
  return 0;
}
