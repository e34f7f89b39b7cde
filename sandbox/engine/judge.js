// The judge of plain_text in the tests: decides by itself, slowly, and before any script has changed an intrinsic.
(() => {
  "use strict";
  const { getPrototypeOf, getOwnPropertyDescriptor, ownKeys, defineProperty, apply } = Reflect;
  const { isFinite } = Number;
  const { stringify } = JSON;
  const ObjectPrototype = Object.prototype;
  const ArrayPrototype = Array.prototype;
  const isWellFormed = String.prototype.isWellFormed;
  const { kindOf, bytesOf } = globalThis;
  const DEPTH_MAX = 256;

  // As in the prelude: otherwise the engine's own errors consult them.
  defineProperty(Error, "prepareStackTrace", { __proto__: null, value: undefined, writable: false, configurable: false });
  defineProperty(Error, "stackTraceLimit", { __proto__: null, value: 16, writable: false, configurable: false });

  let members = 0;

  const own = (object, key) => getOwnPropertyDescriptor(object, key);
  const isData = (found) => found !== undefined && own(found, "get") === undefined && own(found, "set") === undefined;

  const isPlain = (value, depth, room) => {
    if (value === null || typeof value === "boolean") return true;
    if (typeof value === "string") return apply(isWellFormed, value, []);
    if (typeof value === "number") return isFinite(value);
    if (typeof value !== "object" || depth === 0) return false;
    const kind = kindOf(value);
    if (kind === "other" || own(value, "toJSON") !== undefined) return false;
    const prototype = getPrototypeOf(value);
    if (kind === "array") {
      if (prototype !== ArrayPrototype || value.length > room) return false;
      for (let i = 0; i < value.length; i++) {
        const found = own(value, `${i}`);
        if (++members > room || !isData(found)) return false;
        if (found.value !== undefined && !isPlain(found.value, depth - 1, room)) return false;
      }
      return true;
    }
    if (prototype !== null && prototype !== ObjectPrototype) return false;
    const keys = ownKeys(value);
    for (let i = 0; i < keys.length; i++) {
      if (typeof keys[i] !== "string") continue;
      const found = own(value, keys[i]);
      if (!found.enumerable) continue;
      if (++members > room || !isData(found)) return false;
      if (found.value === undefined) continue;
      if (!apply(isWellFormed, keys[i], []) || !isPlain(found.value, depth - 1, room)) return false;
    }
    return true;
  };

  return (value, room, depth) => {
    if (own(ObjectPrototype, "toJSON") !== undefined || own(ArrayPrototype, "toJSON") !== undefined) return undefined;
    if (getPrototypeOf(ArrayPrototype) !== ObjectPrototype) return undefined;
    members = 0;
    if (!isPlain(value, depth > DEPTH_MAX ? DEPTH_MAX : depth, room)) return undefined;
    const text = stringify(value);
    return bytesOf(text) > room ? undefined : text;
  };
})();
