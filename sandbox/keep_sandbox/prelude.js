// The environment of every script, and its only way to the bridge to the host.
//
// Evaluated once, before any script, with line numbers that begin after the last line that a script may have: so a line
// number tells the author's code from ours. Intrinsics are captured first, because the script may replace all that it
// can reach. After setup this code uses no `for…of`, spread, destructuring, `async` or method call on a value of the
// script: each of them consults something that the script may have changed.
(() => {
  "use strict";

  // The functions of the shim. Where a script must not go on, they do not return: the engine stops, and no `catch` or
  // `finally` runs. `plain` is the fast way to JSON text, and undefined where it cannot say.
  const { request: ask, log: write, done: endWith, fail: failWith, loaded, plain } = globalThis.__host;
  delete globalThis.__host;

  // --- captured intrinsics ---------------------------------------------------------------------------------------

  const { apply, construct, ownKeys, getPrototypeOf, defineProperty, preventExtensions } = Reflect;
  const { freeze, keys: objectKeys, create, getOwnPropertyDescriptor } = Object;
  const hasOwn = Object.prototype.hasOwnProperty;
  const isArray = Array.isArray;
  const isFinite = Number.isFinite;
  const jsonParse = JSON.parse;
  const jsonText = JSON.stringify;
  const slice = String.prototype.slice;
  const toLowerCase = String.prototype.toLowerCase;
  const indexOf = String.prototype.indexOf;
  const isWellFormed = String.prototype.isWellFormed;
  const toWellFormed = String.prototype.toWellFormed;
  const RealPromise = Promise;
  const promiseThen = Promise.prototype.then;
  const RealDate = Date;
  const RealError = Error;
  const RealTypeError = TypeError;
  const RealRangeError = RangeError;
  const RealMap = Map;
  const RealSet = Set;
  const RealString = String;
  const ObjectPrototype = Object.prototype;
  const weakGet = WeakMap.prototype.get;
  const weakSet = WeakMap.prototype.set;
  const weakHas = WeakMap.prototype.has;
  const imul = Math.imul;

  const faults = new WeakMap(); // our errors → their meaning, so that their text is never parsed
  const workflows = new WeakMap(); // results of Keep.workflow

  // A `then` that never consults `constructor` or `Symbol.species`, which belong to the script.
  const own = (promise) => {
    defineProperty(promise, "constructor", { __proto__: null, value: undefined });
    return promise;
  };
  const then = (promise, onValue, onError) => {
    apply(promiseThen, own(promise), [onValue, onError]);
  };
  const settled = (compute) => new RealPromise((resolve) => resolve(compute()));

  // --- the state of this invocation -------------------------------------------------------------------------------

  let limits = null;
  let now = 0;
  let random = 0;
  let phase = "load";
  let isTouched = false; // the script looked at the time, drew a number or logged a line while it loaded
  let namespace = null;
  let lastId = 0;
  let logLines = 0;
  const pending = create(null);

  // --- values for the host: read once, written as JSON text --------------------------------------------------------

  const fault = (kind, trail, why) => {
    const path = pathOf(trail);
    const error = new RealTypeError(path === "" ? why : `${path}: ${why}`);
    apply(weakSet, faults, [error, freeze({ __proto__: null, kind, path, why })]);
    return error;
  };

  const pathOf = (trail) => {
    let path = "";
    for (let i = 1; i <= trail.depth; i++) {
      const key = trail.keys[i];
      if (isArray(trail.holders[i])) path += `[${key}]`;
      else if (isName(key)) path += path === "" ? key : `.${key}`;
      else path += `[${jsonText(cut(apply(toWellFormed, key, []), 80))}]`;
    }
    return cut(path, 400);
  };

  const isName = (key) => {
    if (key.length === 0 || key.length > 80) return false;
    for (let i = 0; i < key.length; i++) {
      const c = key[i];
      const letter = (c >= "a" && c <= "z") || (c >= "A" && c <= "Z") || c === "_" || c === "$";
      if (!letter && !(i > 0 && c >= "0" && c <= "9")) return false;
    }
    return true;
  };

  const cut = (text, length) => (text.length > length ? `${apply(slice, text, [0, length - 1])}…` : text);

  const textOf = (root, room) => {
    const text = plain(root, room, limits.value_depth);
    return text === undefined ? checkedText(root, room) : text;
  };

  // The engine's own stringify reads each member once; the replacer only checks each value before it is written.
  const checkedText = (root, room) => {
    const trail = { __proto__: null, depth: -1, holders: [], keys: [] };
    let left = room;
    const given = getOwnPropertyDescriptor(RealDate.prototype, "toJSON");
    // Refuse Dates: they would become strings before the replacer sees them.
    if (given !== undefined) defineProperty(RealDate.prototype, "toJSON", { __proto__: null, value: undefined });
    let text;
    try {
      text = jsonText(root, function (key, value) {
        // No more than is written: an index is not, a name is.
        left -= isArray(this) ? 1 : key.length + 1;
        if (typeof value === "string") left -= value.length + 2;
        else if (typeof value === "object") {
          if (value !== null) lookInside(trail, this, key, value, left);
        } else if (typeof value !== "boolean" && value !== undefined && !isFinite(value)) {
          throw faultAt("invalid", trail, this, key, whatIsWrong(value));
        }
        if (left < 0) throw faultAt("size", trail, this, key, `more than ${limits.value_bytes} bytes`);
        return value;
      });
    } finally {
      if (given !== undefined) defineProperty(RealDate.prototype, "toJSON", given);
    }
    // Only an unpaired surrogate is written like this. Walk a copy of our own to find its path.
    if (apply(indexOf, text, ["\\ud"]) >= 0) {
      const own = { __proto__: null, depth: -1, holders: [], keys: [] };
      jsonText(jsonParse(text), function (key, value) {
        if (!apply(isWellFormed, key, []) || (typeof value === "string" && !apply(isWellFormed, value, []))) {
          throw faultAt("invalid", own, this, key, "text with an unpaired surrogate");
        }
        if (typeof value === "object") step(own, this, key);
        return value;
      });
    }
    return text;
  };

  // Note the current position: the holders from the outside in, with the key in each. Noting objects only is enough:
  // any other fault is in the last of them, or in one around it.
  const step = (trail, holder, key) => {
    let depth = trail.depth;
    while (depth >= 0 && trail.holders[depth] !== holder) depth--;
    if (depth < 0) depth = trail.depth + 1;
    trail.depth = depth;
    trail.holders[depth] = holder;
    trail.keys[depth] = key;
  };

  const faultAt = (kind, trail, holder, key, why) => {
    step(trail, holder, key);
    return fault(kind, trail, why);
  };

  const whatIsWrong = (value) => {
    if (typeof value === "bigint") return "a BigInt is not JSON; use Number() or String()";
    return typeof value === "number" ? `${value} is not JSON` : `a ${typeof value} is not JSON`;
  };

  const lookInside = (trail, holder, key, value, left) => {
    step(trail, holder, key);
    if (trail.depth >= limits.value_depth) throw fault("invalid", trail, `nested more than ${limits.value_depth} deep`);
    for (let i = 1; i <= trail.depth; i++) {
      if (trail.holders[i] === value) throw fault("invalid", trail, "a cycle is not JSON");
    }
    if (isArray(value)) {
      const length = value.length;
      if (typeof length !== "number" || !(length >= 0)) throw fault("invalid", trail, "an array without a length");
      // Checked before the elements are read: an empty array may claim to have four thousand million of them.
      if (length > left) throw fault("size", trail, `more than ${limits.value_bytes} bytes`);
      return;
    }
    const prototype = getPrototypeOf(value);
    if (prototype !== null && prototype !== ObjectPrototype) throw fault("invalid", trail, whatItIs(prototype));
  };

  const whatItIs = (prototype) => {
    if (prototype === RealDate.prototype) return "a Date is not JSON; use toISOString()";
    if (prototype === RealMap.prototype) return "a Map is not JSON; use Object.fromEntries()";
    if (prototype === RealSet.prototype) return "a Set is not JSON; use Array.from()";
    if (prototype === RealPromise.prototype) return "a Promise is not JSON; await it";
    return "not a plain object; copy what you need into one";
  };

  // --- errors, described at the cost of the script's own limits ----------------------------------------------------

  const word = (value) => {
    if (typeof value === "string") return apply(toWellFormed, cut(value, limits.error_chars), []);
    if (value === null || (typeof value !== "object" && typeof value !== "function")) {
      return typeof value === "symbol" ? "a symbol" : cut(RealString(value), limits.error_chars);
    }
    return "";
  };

  const read = (error, name) => {
    try {
      return error[name];
    } catch {
      return undefined;
    }
  };

  const fail = (error) => {
    const known = typeof error === "object" && error !== null ? apply(weakGet, faults, [error]) : undefined;
    const said = { __proto__: null, kind: "error", phase, name: "Error", message: "", stack: "", path: "" };
    if (error === null || (typeof error !== "object" && typeof error !== "function")) {
      said.message = word(error);
    } else {
      const message = read(error, "message");
      const name = read(error, "name");
      const stack = read(error, "stack");
      said.message = message === undefined ? "a thrown object without a message" : word(message);
      if (typeof name === "string" && name !== "") said.name = cut(word(name), 80);
      if (typeof stack === "string") said.stack = word(stack);
    }
    if (known !== undefined) {
      said.kind = known.kind;
      said.path = known.path;
      said.message = known.why;
    }
    failWith(jsonText(said));
  };

  const done = (value) => {
    let text;
    try {
      text = textOf(value === undefined ? null : value, limits.value_bytes);
    } catch (error) {
      return fail(error);
    }
    // JSON has no `undefined`, so a flag says if the handler returned a value.
    endWith(text, value !== undefined);
  };

  // --- requests to the host ----------------------------------------------------------------------------------------

  const request = (kind, name, params) => {
    const id = ++lastId;
    const promise = new RealPromise((resolve) => {
      pending[id] = resolve;
    });
    ask(id, kind, name, params);
    return promise;
  };

  const settle = (id, text) => {
    const resolve = pending[id];
    delete pending[id];
    resolve(jsonParse(text));
  };

  const argsText = (value) => textOf(value, limits.value_bytes);

  const topicFunction = (kind, name, second, required) => (topic, given) => {
    if (typeof topic !== "string") throw new RealTypeError(`ctx.${name}: the topic must be a string`);
    if (given === undefined && required) throw new RealTypeError(`ctx.${name}: ${second} is missing`);
    return request(kind, name, argsText({ __proto__: null, topic, [second]: given }));
  };

  // --- item scopes: one at a time, in the order of the calls -------------------------------------------------------

  // An item is opened and closed only while no other code of the script is active: so every request made while an item
  // is open was begun inside it, awaited or not, and all others were not.

  let ctx = null;
  let item;
  let scope = null;
  let left = null; // the result of the open item's body, while something that it began is still active
  const waiting = [];
  let firstWaiting = 0;
  let opensItems = false;
  let returned = null; // the result of a job's handler, while something that it began is still active

  const withItem = (id, title, body) => {
    if (typeof id !== "string" || id === "") throw new RealTypeError("ctx.withItem: the id must be a non-empty string");
    if (typeof title !== "string" || title === "") {
      throw new RealTypeError("ctx.withItem: the title must be a non-empty string");
    }
    if (typeof body !== "function") throw new RealTypeError("ctx.withItem: the third argument must be a function");
    const params = argsText({ __proto__: null, id, title });
    // Made here, so that its stack has the place of the call.
    const unfinished = new RealError(
      `the handler returned before item ${jsonText(cut(id, 80))} was finished: ` +
        "`await` every `ctx.withItem` (use `for … of`, not `forEach`)",
    );
    return new RealPromise((resolve) => {
      waiting[waiting.length] = { __proto__: null, id, title, body, params, unfinished, resolve };
    });
  };

  const openScope = (enter) => {
    scope = waiting[firstWaiting++];
    then(request("item_open", "withItem", scope.params), enter, fail);
  };

  const runScope = (opened) => {
    const current = scope;
    item = freeze({ __proto__: null, id: current.id, title: current.title, isDone: opened?.isDone === true });
    // An error in the body ends the invocation: the script cannot catch it and go on.
    then(settled(() => apply(current.body, undefined, [ctx])), leaveScope, fail);
  };

  const leaveScope = (value) => {
    left = { __proto__: null, value };
  };

  const closeScope = () => {
    const current = scope;
    const { value } = left;
    left = null;
    then(
      request("item_close", "withItem", argsText({ __proto__: null, id: current.id })),
      () => {
        item = undefined;
        scope = null;
        current.resolve(value);
      },
      fail,
    );
  };

  // A job has ended when nothing that it began is active: otherwise an item that it opens later would be lost silently.
  const finish = (value) => {
    if (scope !== null) fail(scope.unfinished);
    else if (opensItems) returned = { __proto__: null, value };
    else done(value);
  };

  // Called when no job is pending and no request is open.
  const stuck = () => {
    if (returned !== null && firstWaiting >= waiting.length) return done(returned.value);
    // Open the item, so that people see which one it was, but do not run its body.
    if (returned !== null) return openScope(() => fail(scope.unfinished));
    if (left !== null) return closeScope();
    if (firstWaiting >= waiting.length) return;
    if (scope === null) return openScope(runScope);
    fail(new RealTypeError(`ctx.withItem cannot be nested: "${scope.id}" waits for "${waiting[firstWaiting].id}"`));
  };

  // --- ctx, built from the capabilities ----------------------------------------------------------------------------

  const buildContext = (given) => {
    const made = create(null);
    const add = (target, name, value) => defineProperty(target, name, { __proto__: null, value, enumerable: true });
    if (given.peek) add(made, "peek", freeze(topicFunction("peek", "peek", "options", false)));
    if (given.get_by_ids) add(made, "getByIds", freeze(topicFunction("get_by_ids", "getByIds", "ids", true)));
    if (given.publish) add(made, "publish", freeze(topicFunction("publish", "publish", "event", true)));
    if (given.with_item) {
      add(made, "withItem", freeze(withItem));
      defineProperty(made, "item", { __proto__: null, get: freeze(() => item), enumerable: true });
    }
    const namespaces = objectKeys(given.connectors);
    for (let i = 0; i < namespaces.length; i++) {
      const namespace = namespaces[i];
      const methods = given.connectors[namespace];
      const names = objectKeys(methods);
      const connector = create(null);
      for (let j = 0; j < names.length; j++) {
        const full = `${namespace}.${names[j]}`;
        const kind = methods[names[j]];
        add(
          connector,
          names[j],
          freeze((params) => request(kind, full, argsText(params === undefined ? create(null) : params))),
        );
      }
      add(made, namespace, freeze(connector));
    }
    return freeze(made);
  };

  // --- running one handler, or reading the declaration -------------------------------------------------------------

  const missing = (what) => {
    const error = new RealTypeError(what);
    defineProperty(error, "name", { __proto__: null, value: "LoadError" });
    return error;
  };

  const workflowOf = (namespace) => {
    const workflow = namespace.default;
    if (workflow === null || typeof workflow !== "object" || !apply(weakHas, workflows, [workflow])) {
      throw missing("the script does not `export default Keep.workflow({...})`");
    }
    return workflow;
  };

  const member = (owner, name) =>
    owner !== null && typeof owner === "object" && apply(hasOwn, owner, [name]) ? owner[name] : undefined;

  const instant = (limitsText, nowMs, seed) => {
    if (limitsText !== "") limits = jsonParse(limitsText);
    now = nowMs;
    random = seed;
  };

  // Import the script, which the shim has evaluated, and keep its exports. Its image is taken here.
  const load = () => {
    then(
      import("<input>"),
      (found) => {
        namespace = found;
        loaded();
      },
      fail,
    );
  };

  const start = (capabilities, address, args) => {
    const given = jsonParse(capabilities);
    ctx = buildContext(given);
    // There are no items where a mutation ends the script.
    opensItems = !given.mutation_is_terminal;
    const path = jsonParse(address);
    const rest = jsonParse(args);
    let owner;
    let handler;
    try {
      const group = member(workflowOf(namespace), path[0]);
      owner = member(group, path[1]);
      handler = path.length === 3 ? member(owner, path[2]) : owner;
      if (path.length === 2 && typeof handler !== "function") handler = member(owner, "handler");
      else if (path.length === 2) owner = group;
      if (typeof handler !== "function") {
        const phaseName = path.length === 3 ? `.${path[2]}` : "";
        throw missing(`the script has no handler ${path[0]}.${path[1]}${phaseName}`);
      }
    } catch (error) {
      return fail(error);
    }
    phase = "run";
    const all = [ctx];
    for (let i = 0; i < rest.length; i++) all[i + 1] = rest[i];
    then(settled(() => apply(handler, owner, all)), finish, fail);
  };

  // For `inspect`: read the declaration with the function of declare.js.
  const declare = (describe) => {
    let found;
    try {
      const tools = { __proto__: null, member, textOf, jsonParse, objectKeys, isArray, create };
      found = describe(workflowOf(namespace), tools);
    } catch (error) {
      return fail(error);
    }
    done(found);
  };

  // --- globals for the script --------------------------------------------------------------------------------------

  const replaceable = (value) => ({ __proto__: null, value, writable: true, configurable: true });
  const setGlobal = (name, value) => defineProperty(globalThis, name, replaceable(value));

  const shown = (value) => {
    if (typeof value === "string") return value;
    if (value === null || (typeof value !== "object" && typeof value !== "function")) return word(value);
    if (typeof value === "function") return "[function]";
    try {
      return textOf(value, limits.log_line_chars * 4);
    } catch {
      const name = word(read(value, "name"));
      const message = word(read(value, "message"));
      return name || message ? `${name}: ${message}` : "[object]";
    }
  };

  const log = (...values) => {
    isTouched = true;
    if (logLines >= limits.log_lines) return;
    logLines++;
    let line = "";
    for (let i = 0; i < values.length && line.length < limits.log_line_chars; i++) {
      line += i === 0 ? shown(values[i]) : ` ${shown(values[i])}`;
    }
    write(apply(toWellFormed, cut(line, limits.log_line_chars), []));
  };
  freeze(log);
  setGlobal("console", freeze({ __proto__: null, log, info: log, warn: log, error: log, debug: log }));

  const declared = (what) => freeze((spec) => {
    if (spec === null || typeof spec !== "object") throw new RealTypeError(`Keep.${what} takes an object`);
    if (what === "workflow") apply(weakSet, workflows, [spec, true]);
    return spec;
  });
  defineProperty(globalThis, "Keep", {
    __proto__: null,
    value: freeze({ __proto__: null, workflow: declared("workflow"), consumer: declared("consumer") }),
  });

  // The time stands still during an invocation: a script cannot measure time, and a rerun sees the same time.
  const dateNow = () => {
    isTouched = true;
    return now;
  };
  function KeepDate(...args) {
    if (new.target === undefined) return new RealDate(dateNow()).toString();
    return construct(RealDate, args.length === 0 ? [dateNow()] : args, new.target);
  }
  defineProperty(KeepDate, "name", { __proto__: null, value: "Date" });
  defineProperty(KeepDate, "length", { __proto__: null, value: 7 });
  defineProperty(KeepDate, "prototype", { __proto__: null, value: RealDate.prototype, writable: false });
  defineProperty(KeepDate, "now", replaceable(dateNow));
  defineProperty(KeepDate, "parse", replaceable(RealDate.parse));
  defineProperty(KeepDate, "UTC", replaceable(RealDate.UTC));
  defineProperty(RealDate.prototype, "constructor", replaceable(KeepDate));
  setGlobal("Date", KeepDate);

  // The engine knows no time zone but UTC. It would answer in UTC whatever zone it was asked for.
  const universal = ["utc", "gmt", "etc/utc", "etc/gmt", "etc/uct", "uct", "z", "zulu", "etc/zulu", "universal"];
  const refuseZone = (name, options) => {
    const zone = options === undefined || options === null ? undefined : options.timeZone;
    if (zone === undefined) return;
    const asked = apply(toLowerCase, RealString(zone), []);
    for (let i = 0; i < universal.length; i++) if (universal[i] === asked) return;
    throw new RealRangeError(
      `Date.prototype.${name}: the time zone ${jsonText(cut(word(RealString(zone)), 80))} is not known here; ` +
        "scripts know UTC only. Add the offset yourself, or ask a connector",
    );
  };
  const localised = ["toLocaleString", "toLocaleDateString", "toLocaleTimeString"];
  for (let i = 0; i < localised.length; i++) {
    const name = localised[i];
    const inUtc = RealDate.prototype[name];
    const { [name]: checked } = {
      [name](locales, options) {
        refuseZone(name, options);
        return apply(inUtc, this, []);
      },
    };
    defineProperty(RealDate.prototype, name, replaceable(checked));
  }

  // mulberry32: small, and good enough for anything but secrets.
  const seededRandom = () => {
    isTouched = true;
    random = (random + 0x6d2b79f5) | 0;
    let t = imul(random ^ (random >>> 15), 1 | random);
    t = (t + imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
  defineProperty(Math, "random", replaceable(seededRandom));

  // --- globals removed from the script -----------------------------------------------------------------------------

  const noCode = function Function() {
    throw new RealTypeError("code cannot be created from text here");
  };
  const functionPrototypes = [
    Function.prototype,
    getPrototypeOf(async () => {}),
    getPrototypeOf(function* () {}),
    getPrototypeOf(async function* () {}),
  ];
  for (let i = 0; i < functionPrototypes.length; i++) {
    defineProperty(functionPrototypes[i], "constructor", { __proto__: null, value: noCode });
  }
  defineProperty(noCode, "prototype", { __proto__: null, value: functionPrototypes[0], writable: false });
  freeze(noCode);
  setGlobal("Function", noCode);

  const absent = ["eval", "SharedArrayBuffer", "Atomics", "WeakRef", "FinalizationRegistry", "performance"];
  for (let i = 0; i < absent.length; i++) delete globalThis[absent[i]];

  // With `rawJSON` a script could write numbers (`1e400`) that no decoder can represent. A reviver does not get the
  // source text either.
  delete JSON.rawJSON;
  delete JSON.isRawJSON;
  const { parse } = {
    parse(text, reviver) {
      if (typeof reviver !== "function") return jsonParse(text);
      return jsonParse(text, function (key, value) {
        return apply(reviver, this, [key, value]);
      });
    },
  };
  defineProperty(JSON, "parse", replaceable(parse));

  // A stack trace hook would get our own functions.
  const locked = (value) => ({ __proto__: null, value, writable: false, configurable: false });
  defineProperty(RealError, "prepareStackTrace", locked(undefined));
  defineProperty(RealError, "stackTraceLimit", locked(16));

  // Not frozen: `this.name = …` in a subclass of Error must keep working. But no property may be added to a prototype
  // that our own objects inherit from.
  const seal = (value) => {
    if (value !== null && (typeof value === "object" || typeof value === "function")) preventExtensions(value);
  };
  const names = ownKeys(globalThis);
  for (let i = 0; i < names.length; i++) {
    const found = getOwnPropertyDescriptor(globalThis, names[i]).value;
    if (typeof found === "function") seal(found.prototype);
    else if (found !== globalThis) seal(found);
  }
  for (let i = 0; i < functionPrototypes.length; i++) {
    seal(functionPrototypes[i]);
    seal(functionPrototypes[i].prototype);
  }
  const iterators = [[].values(), new Map().values(), new Set().values(), ""[Symbol.iterator](), "".matchAll(/./g)];
  for (let i = 0; i < iterators.length; i++) {
    seal(getPrototypeOf(iterators[i]));
    seal(getPrototypeOf(getPrototypeOf(iterators[i])));
  }
  seal(getPrototypeOf(getPrototypeOf(functionPrototypes[3].prototype)));
  seal(getPrototypeOf(Int8Array).prototype);

  // --- the entry point, for the engine only ------------------------------------------------------------------------

  return (what, a, b, c) => {
    switch (what) {
      case "instant":
        return instant(a, b, c);
      case "load":
        return load();
      case "touched":
        return isTouched ? 1 : 0;
      case "start":
        return start(a, b, c);
      case "declare":
        return declare(a);
      case "settle":
        return settle(a, b);
      case "stuck":
        return stuck();
      case "where":
        return fail(new RealError());
    }
  };
})();
