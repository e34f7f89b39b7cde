// JSON text of plain values.
//
// Plain are null, booleans, finite numbers, well-formed text, and ordinary objects and arrays of them, whose members are
// data properties and which inherit from nothing that a script made. Their text is the one that JSON.stringify writes.
// Anything else is "not plain", which is not an error: the prelude's `textOf` then decides, and words what is wrong.
//
// No code of the script runs in here. The engine is asked for own properties only, of objects of two classes that have
// no hooks: no getter, no trap of a proxy, no toJSON and no toString is ever called. So a value cannot change while it
// is read, and what was checked once stays true until the end. (Running out of memory makes an error, whose trace would
// consult Error.prepareStackTrace and Error.stackTraceLimit: the prelude locks both.)
//
// The text, and what it takes to make it, come from the engine's allocator, so that the heap limit holds. A value that
// does not fit is not plain either.
#include "plain.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

enum {
  FIRST_BYTES = 256,
  // The depth is also the depth of the C stack, about 300 bytes each, whatever limit the host chooses.
  DEPTH_MAX = 256,
};

static struct {
  JSClassID object_class, array_class;
  JSValue object_prototype, array_prototype;
  JSAtom to_json;
} captured;

typedef struct {
  JSContext *ctx;
  char *bytes;
  uint32_t used, size;
  uint32_t room;
  uint32_t members;  // looked at until now, written or not
} Text;

// --- the text --------------------------------------------------------------------------------------------------------

static bool grow(Text *text, uint32_t length) {
  uint32_t size = text->size;
  do {
    if (size < FIRST_BYTES) size = FIRST_BYTES;
    else if (size <= text->room / 2) size *= 2;
    else size = text->room;
    if (size > text->room) size = text->room;
  } while (size - text->used < length);
  char *bytes = js_realloc(text->ctx, text->bytes, size);
  if (bytes == NULL) return false;
  text->bytes = bytes;
  text->size = size;
  return true;
}

static bool put(Text *text, const char *bytes, size_t length) {
  if (length == 0) return true;
  if (length > text->room - text->used) return false;
  if (length > text->size - text->used && !grow(text, (uint32_t)length)) return false;
  memcpy(text->bytes + text->used, bytes, length);
  text->used += (uint32_t)length;
  return true;
}

static bool put_escape(Text *text, unsigned char c) {
  static const char hex[] = "0123456789abcdef";
  switch (c) {
    case '"': return put(text, "\\\"", 2);
    case '\\': return put(text, "\\\\", 2);
    case '\b': return put(text, "\\b", 2);
    case '\t': return put(text, "\\t", 2);
    case '\n': return put(text, "\\n", 2);
    case '\f': return put(text, "\\f", 2);
    case '\r': return put(text, "\\r", 2);
    default: return put(text, (const char[]){'\\', 'u', '0', '0', hex[c >> 4], hex[c & 15]}, 6);
  }
}

// The engine's UTF-8, between quotes. It writes an unpaired surrogate as if it were a character (ED A0..BF ..).
static bool put_quoted(Text *text, const char *bytes, size_t length) {
  if (!put(text, "\"", 1)) return false;
  size_t from = 0;
  for (size_t at = 0; at < length; at++) {
    unsigned char c = (unsigned char)bytes[at];
    if (c == 0xed && (at + 1 == length || (unsigned char)bytes[at + 1] >= 0xa0)) return false;
    if (c >= 0x20 && c != '"' && c != '\\') continue;
    if (!put(text, bytes + from, at - from) || !put_escape(text, c)) return false;
    from = at + 1;
  }
  return put(text, bytes + from, length - from) && put(text, "\"", 1);
}

static bool put_integer(Text *text, int32_t value) {
  char digits[11];
  char *end = digits + sizeof digits, *at = end;
  uint32_t left = value < 0 ? 0u - (uint32_t)value : (uint32_t)value;
  do *--at = (char)('0' + left % 10);
  while ((left /= 10) != 0);
  if (value < 0) *--at = '-';
  return put(text, at, (size_t)(end - at));
}

// --- values ----------------------------------------------------------------------------------------------------------

static bool put_number(Text *text, JSValueConst value) {
  if (JS_VALUE_GET_TAG(value) == JS_TAG_INT) return put_integer(text, JS_VALUE_GET_INT(value));
  double number;
  if (JS_ToFloat64(text->ctx, &number, value) < 0 || !isfinite(number)) return false;
  size_t length;
  const char *digits = JS_ToCStringLen(text->ctx, &length, value);
  if (digits == NULL) return false;
  bool done = put(text, digits, length);
  JS_FreeCString(text->ctx, digits);
  return done;
}

static bool put_string(Text *text, JSValueConst value) {
  // Asked first, so that no copy is made of what cannot fit: a unit of UTF-16 is never less than a byte of UTF-8.
  int64_t units;
  if (JS_GetLength(text->ctx, value, &units) < 0 || units > text->room - text->used) return false;
  size_t length;
  const char *bytes = JS_ToCStringLen(text->ctx, &length, value);
  if (bytes == NULL) return false;
  bool done = put_quoted(text, bytes, length);
  JS_FreeCString(text->ctx, bytes);
  return done;
}

static bool put_key(Text *text, JSAtom key) {
  size_t length;
  const char *bytes = JS_AtomToCStringLen(text->ctx, &length, key);
  if (bytes == NULL) return false;
  bool done = put_quoted(text, bytes, length) && put(text, ":", 1);
  JS_FreeCString(text->ctx, bytes);
  return done;
}

static bool inherits(JSContext *ctx, JSValueConst object, JSValueConst prototype) {
  JSValue found = JS_GetPrototype(ctx, object);
  bool same = JS_IsObject(found) && JS_VALUE_GET_PTR(found) == JS_VALUE_GET_PTR(prototype);
  JS_FreeValue(ctx, found);
  return same;
}

static bool inherits_nothing(JSContext *ctx, JSValueConst object) {
  JSValue found = JS_GetPrototype(ctx, object);
  bool nothing = JS_IsNull(found);
  JS_FreeValue(ctx, found);
  return nothing;
}

// An own toJSON may be hidden from the enumeration, so it is asked for by name.
static bool has_to_json(JSContext *ctx, JSValueConst object) {
  return JS_GetOwnProperty(ctx, NULL, object, captured.to_json) != 0;
}

// The value of an own data property. False, and no value, if there is none or if it is an accessor.
static bool own_value(JSContext *ctx, JSValueConst object, JSAtom key, JSValue *value) {
  JSPropertyDescriptor found;
  if (JS_GetOwnProperty(ctx, &found, object, key) <= 0) return false;
  *value = found.value;
  if ((found.flags & JS_PROP_GETSET) == 0) return true;
  JS_FreeValue(ctx, found.value);
  JS_FreeValue(ctx, found.getter);
  JS_FreeValue(ctx, found.setter);
  return false;
}

// Members that are left out take no room, but they take time.
static bool may_look(Text *text) { return text->members++ < text->room; }

static bool put_value(Text *text, JSValueConst value, uint32_t depth);

static bool put_element(Text *text, JSValueConst array, uint32_t index, uint32_t depth) {
  JSAtom key = JS_NewAtomUInt32(text->ctx, index);
  if (key == JS_ATOM_NULL) return false;
  JSValue value;
  bool done = may_look(text) && own_value(text->ctx, array, key, &value);  // a hole is not plain
  JS_FreeAtom(text->ctx, key);
  if (!done) return false;
  done = (index == 0 || put(text, ",", 1)) &&
         (JS_IsUndefined(value) ? put(text, "null", 4) : put_value(text, value, depth));
  JS_FreeValue(text->ctx, value);
  return done;
}

static bool put_array(Text *text, JSValueConst array, uint32_t depth) {
  int64_t length;
  if (!inherits(text->ctx, array, captured.array_prototype) || has_to_json(text->ctx, array)) return false;
  // An empty array may claim to have four thousand million elements.
  if (JS_GetLength(text->ctx, array, &length) < 0 || length > text->room - text->used) return false;
  if (!put(text, "[", 1)) return false;
  for (uint32_t index = 0; index < length; index++) {
    if (!put_element(text, array, index, depth)) return false;
  }
  return put(text, "]", 1);
}

static bool put_member(Text *text, JSValueConst object, JSAtom key, bool first, uint32_t depth) {
  JSValue value;
  if (!may_look(text) || !own_value(text->ctx, object, key, &value)) return false;
  bool done = JS_IsUndefined(value) ||
              ((first || put(text, ",", 1)) && put_key(text, key) && put_value(text, value, depth));
  JS_FreeValue(text->ctx, value);
  return done;
}

static bool put_object(Text *text, JSValueConst object, uint32_t depth) {
  JSContext *ctx = text->ctx;
  if (!inherits(ctx, object, captured.object_prototype) && !inherits_nothing(ctx, object)) return false;
  if (has_to_json(ctx, object) || !put(text, "{", 1)) return false;
  JSPropertyEnum *members;
  uint32_t count, start = text->used;
  if (JS_GetOwnPropertyNames(ctx, &members, &count, object, JS_GPN_STRING_MASK | JS_GPN_ENUM_ONLY) < 0) return false;
  bool done = true;
  for (uint32_t i = 0; done && i < count; i++) {
    done = put_member(text, object, members[i].atom, text->used == start, depth);
  }
  JS_FreePropertyEnum(ctx, members, count);
  return done && put(text, "}", 1);
}

// `depth` is how many objects and arrays may still be inside each other, this one included.
static bool put_value(Text *text, JSValueConst value, uint32_t depth) {
  if (JS_IsString(value)) return put_string(text, value);
  if (JS_IsNumber(value)) return put_number(text, value);
  if (JS_IsNull(value)) return put(text, "null", 4);
  if (JS_IsBool(value)) return JS_VALUE_GET_BOOL(value) ? put(text, "true", 4) : put(text, "false", 5);
  if (!JS_IsObject(value) || depth == 0) return false;  // a cycle ends here too
  JSClassID class = JS_GetClassID(value);
  if (class == captured.object_class) return put_object(text, value, depth - 1);
  if (class == captured.array_class) return put_array(text, value, depth - 1);
  return false;
}

// --- for the shim ----------------------------------------------------------------------------------------------------

int plain_init(JSContext *ctx) {
  JSValue object = JS_NewObject(ctx), array = JS_NewArray(ctx);
  captured.object_class = JS_GetClassID(object);
  captured.array_class = JS_GetClassID(array);
  captured.object_prototype = JS_IsObject(object) ? JS_GetPrototype(ctx, object) : JS_UNDEFINED;
  captured.array_prototype = JS_IsObject(array) ? JS_GetPrototype(ctx, array) : JS_UNDEFINED;
  captured.to_json = JS_NewAtom(ctx, "toJSON");
  JS_FreeValue(ctx, object);
  JS_FreeValue(ctx, array);
  bool whole = JS_IsObject(captured.object_prototype) && JS_IsObject(captured.array_prototype);
  if (whole && captured.to_json != JS_ATOM_NULL) return 0;
  plain_free(ctx);
  return -1;
}

void plain_free(JSContext *ctx) {
  JS_FreeValue(ctx, captured.object_prototype);
  JS_FreeValue(ctx, captured.array_prototype);
  JS_FreeAtom(ctx, captured.to_json);
  captured.object_prototype = captured.array_prototype = JS_UNDEFINED;
  captured.to_json = JS_ATOM_NULL;
}

// Nothing may have given the prototypes a toJSON, nor put anything between or above them.
static bool prototypes_are_as_they_were(JSContext *ctx) {
  return !has_to_json(ctx, captured.object_prototype) && !has_to_json(ctx, captured.array_prototype) &&
         inherits_nothing(ctx, captured.object_prototype) &&
         inherits(ctx, captured.array_prototype, captured.object_prototype);
}

JSValue plain_text(JSContext *ctx, JSValueConst value, uint32_t room, uint32_t depth) {
  Text text = {.ctx = ctx, .room = room};
  if (depth > DEPTH_MAX) depth = DEPTH_MAX;
  bool done = prototypes_are_as_they_were(ctx) && put_value(&text, value, depth);
  JSValue result = done ? JS_NewStringLen(ctx, text.bytes, text.used) : JS_UNDEFINED;
  js_free(ctx, text.bytes);
  if (!JS_IsString(result)) {
    JS_FreeValue(ctx, JS_GetException(ctx));  // out of memory, if anything
    return JS_UNDEFINED;
  }
  return result;
}
