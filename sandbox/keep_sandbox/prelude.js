// What every script finds before it runs, and all that stands between it and the bridge to the host.
//
// Evaluated once per context, before the script, behind as many newlines as a script may have lines: a line number
// tells whose code it is. Everything it needs later is captured first, because the script may replace every
// intrinsic it can reach. After setup there is no `for…of`, spread, destructuring, `async` or method call on a
// value of the script here: each of them asks something that the script may have changed.
(() => {
  "use strict";

  const bridge = globalThis.__bridge;
  // A fuse is a Python callable whose only use is to be let go of; see engine.py. Held here and nowhere else.
  let armFuse = globalThis.__arm_fuse;
  let stopFuse = globalThis.__stop_fuse;
  delete globalThis.__bridge;
  delete globalThis.__arm_fuse;
  delete globalThis.__stop_fuse;

  // --- captured intrinsics ---------------------------------------------------------------------------------------

  const { apply, construct, ownKeys, getPrototypeOf, defineProperty, preventExtensions } = Reflect;
  const { freeze, keys: objectKeys, create, getOwnPropertyDescriptor } = Object;
  const hasOwn = Object.prototype.hasOwnProperty;
  const isArray = Array.isArray;
  const isFinite = Number.isFinite;
  const jsonParse = JSON.parse;
  const jsonText = JSON.stringify;
  const slice = String.prototype.slice;
  const indexOf = String.prototype.indexOf;
  const isWellFormed = String.prototype.isWellFormed;
  const toWellFormed = String.prototype.toWellFormed;
  const RealPromise = Promise;
  const promiseThen = Promise.prototype.then;
  const RealDate = Date;
  const RealError = Error;
  const RealTypeError = TypeError;
  const RealMap = Map;
  const RealSet = Set;
  const RealString = String;
  const ObjectPrototype = Object.prototype;
  const weakGet = WeakMap.prototype.get;
  const weakSet = WeakMap.prototype.set;
  const weakHas = WeakMap.prototype.has;
  const imul = Math.imul;

  const faults = new WeakMap(); // errors of ours → what they mean, so that nothing is read from their text
  const workflows = new WeakMap(); // what Keep.workflow returned

  // A `then` that never consults `constructor` or `Symbol.species`, which belong to the script.
  const own = (promise) => {
    defineProperty(promise, "constructor", { __proto__: null, value: undefined });
    return promise;
  };
  const then = (promise, onValue, onError) => {
    apply(promiseThen, own(promise), [onValue, onError]);
  };
  const settled = (compute) => new RealPromise((resolve) => resolve(compute()));

  // --- the state of this one invocation --------------------------------------------------------------------------

  let limits = null;
  let now = 0;
  let random = 0;
  let phase = "load";
  let lastId = 0;
  let logLines = 0;
  const pending = create(null);

  // --- values that cross: read once, written as JSON text ---------------------------------------------------------

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

  // The engine's own stringify reads and writes, each member once; we only look at each value before it is written.
  const textOf = (root, room) => {
    const trail = { __proto__: null, depth: -1, holders: [], keys: [] };
    let left = room;
    const given = getOwnPropertyDescriptor(RealDate.prototype, "toJSON");
    // A Date would become a string before we see it, and come back as something else than it went.
    if (given !== undefined) defineProperty(RealDate.prototype, "toJSON", { __proto__: null, value: undefined });
    let text;
    try {
      text = jsonText(root, function (key, value) {
        left -= key.length + 1;
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
    // Half a surrogate pair is the only thing that is written like this. To find out where, our own copy is read.
    if (apply(indexOf, text, ["\\ud"]) >= 0) {
      const own = { __proto__: null, depth: -1, holders: [], keys: [] };
      jsonText(jsonParse(text), function (key, value) {
        if (!apply(isWellFormed, key, []) || (typeof value === "string" && !apply(isWellFormed, value, []))) {
          throw faultAt("invalid", own, this, key, "half a surrogate pair is not text");
        }
        if (typeof value === "object") step(own, this, key);
        return value;
      });
    }
    return text;
  };

  // Where in the value this is: the holders from the outside in, and the key that was taken in each. Only objects
  // are noted as they are met, which is enough: what else goes wrong is in the last of them, or in one around it.
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
      // Before the elements: an empty array may claim four thousand million of them.
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
    return "not a plain object; copy what is needed into one";
  };

  // --- errors, described here, on the script's own budget ----------------------------------------------------------

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
    bridge("fail", jsonText(said));
  };

  const done = (value) => {
    let text;
    try {
      text = textOf(value === undefined ? null : value, limits.value_bytes);
    } catch (error) {
      return fail(error);
    }
    // JSON has no `undefined`: whether anything was returned is said beside it.
    bridge("done", text, value !== undefined);
  };

  // --- requests to the host ----------------------------------------------------------------------------------------

  const request = (kind, name, params) => {
    const id = ++lastId;
    const promise = new RealPromise((resolve) => {
      pending[id] = resolve;
    });
    // True: this was the last word of the script. The engine stops it here, and no `catch` or `finally` sees it.
    if (bridge("request", id, kind, name, params)) for (;;);
    return promise;
  };

  const settle = (id, text) => {
    const resolve = pending[id];
    delete pending[id];
    resolve(jsonParse(text));
  };

  const argsText = (value) => textOf(value, limits.value_bytes);

  const topicFunction = (kind, name, second, required) => (topic, given) => {
    if (typeof topic !== "string") throw new RealTypeError(`ctx.${name}: the topic is a string`);
    if (given === undefined && required) throw new RealTypeError(`ctx.${name}: ${second} is missing`);
    return request(kind, name, argsText({ __proto__: null, topic, [second]: given }));
  };

  // --- item scopes: one at a time, in the order of the calls -------------------------------------------------------

  // An item is opened, and closed, only when nothing else goes on: so whatever is asked for while one is open was begun
  // inside of it, awaited or not, and whatever is asked for while none is open was not.

  let ctx = null;
  let item;
  let scope = null;
  let left = null; // what the body of the open item has returned, while something that it began still goes on
  const waiting = [];
  let firstWaiting = 0;
  let opensItems = false;
  let returned = null; // what the handler of a job has returned, while something that it began still goes on

  const withItem = (id, title, body) => {
    if (typeof id !== "string" || id === "") throw new RealTypeError("ctx.withItem: the id is a non-empty string");
    if (typeof title !== "string" || title === "") {
      throw new RealTypeError("ctx.withItem: the title is a non-empty string");
    }
    if (typeof body !== "function") throw new RealTypeError("ctx.withItem: the third argument is a function");
    const params = argsText({ __proto__: null, id, title });
    // Made here, where it is known who called: its place is that of the call.
    const unfinished = new RealError(
      `the handler returned while item ${jsonText(cut(id, 80))} was not finished: ` +
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
    // An error inside a scope ends the invocation here: the script cannot catch it and go on.
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

  // A job is over when nothing that it began goes on: an item that it opens later would be left out without a word.
  const finish = (value) => {
    if (scope !== null) fail(scope.unfinished);
    else if (opensItems) returned = { __proto__: null, value };
    else done(value);
  };

  // Nothing is to be done any more, and nothing is asked for.
  const stuck = () => {
    if (returned !== null && firstWaiting >= waiting.length) return done(returned.value);
    // Opened so that people see which item it was, and not entered.
    if (returned !== null) return openScope(() => fail(scope.unfinished));
    if (left !== null) return closeScope();
    if (firstWaiting >= waiting.length) return;
    if (scope === null) return openScope(runScope);
    fail(new RealTypeError(`ctx.withItem cannot be nested: "${scope.id}" waits for "${waiting[firstWaiting].id}"`));
  };

  // --- ctx, from the host's data -----------------------------------------------------------------------------------

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

  // --- running one handler, or none --------------------------------------------------------------------------------

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

  const start = (address, args) => {
    const path = jsonParse(address);
    const given = jsonParse(args);
    then(
      import("<input>"),
      (namespace) => {
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
        for (let i = 0; i < given.length; i++) all[i + 1] = given[i];
        then(settled(() => apply(handler, owner, all)), finish, fail);
      },
      fail,
    );
  };

  // For `inspect`: what the script declares, read by a function that only then is there (declare.js).
  const declare = (describe) => {
    then(
      import("<input>"),
      (namespace) => {
        let found;
        try {
          const tools = { __proto__: null, member, textOf, jsonParse, objectKeys, isArray, create };
          found = describe(workflowOf(namespace), tools);
        } catch (error) {
          return fail(error);
        }
        done(found);
      },
      fail,
    );
  };

  // --- what the script sees ----------------------------------------------------------------------------------------

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
    if (logLines >= limits.log_lines) return;
    logLines++;
    let line = "";
    for (let i = 0; i < values.length && line.length < limits.log_line_chars; i++) {
      line += i === 0 ? shown(values[i]) : ` ${shown(values[i])}`;
    }
    bridge("log", jsonText(apply(toWellFormed, cut(line, limits.log_line_chars), [])));
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

  // One instant for the whole invocation: a script that measures time measures nothing, and a rerun sees the same.
  function KeepDate(...args) {
    if (new.target === undefined) return new RealDate(now).toString();
    return construct(RealDate, args.length === 0 ? [now] : args, new.target);
  }
  const dateNow = () => now;
  defineProperty(KeepDate, "name", { __proto__: null, value: "Date" });
  defineProperty(KeepDate, "length", { __proto__: null, value: 7 });
  defineProperty(KeepDate, "prototype", { __proto__: null, value: RealDate.prototype, writable: false });
  defineProperty(KeepDate, "now", replaceable(dateNow));
  defineProperty(KeepDate, "parse", replaceable(RealDate.parse));
  defineProperty(KeepDate, "UTC", replaceable(RealDate.UTC));
  defineProperty(RealDate.prototype, "constructor", replaceable(KeepDate));
  setGlobal("Date", KeepDate);

  // mulberry32: small, and good enough for what is not a secret.
  const seededRandom = () => {
    random = (random + 0x6d2b79f5) | 0;
    let t = imul(random ^ (random >>> 15), 1 | random);
    t = (t + imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
  defineProperty(Math, "random", replaceable(seededRandom));

  // --- what the script does not see --------------------------------------------------------------------------------

  const noCode = function Function() {
    throw new RealTypeError("code cannot be made from text here");
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

  // JSON text is made from values and from nothing else: with `rawJSON` a script would write numbers (`1e400`) that no
  // value has, and that nobody who reads them later can hold. Nor is a reviver handed the text that it revives.
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

  // A stack trace hook would be handed our own functions.
  const locked = (value) => ({ __proto__: null, value, writable: false, configurable: false });
  defineProperty(RealError, "prepareStackTrace", locked(undefined));
  defineProperty(RealError, "stackTraceLimit", locked(16));

  // Not frozen: `this.name = …` in a subclass of Error must keep working. But nothing new may appear on a prototype
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

  // --- the way in, for the engine alone ----------------------------------------------------------------------------

  return (what, a, b) => {
    switch (what) {
      case "configure": {
        const given = jsonParse(a);
        limits = given.limits;
        now = given.now_ms;
        random = given.seed | 0;
        ctx = buildContext(given.capabilities);
        // Where a mutation ends the script there are no items.
        opensItems = !given.capabilities.mutation_is_terminal;
        return;
      }
      case "arm":
        armFuse = null;
        return;
      case "stop":
        stopFuse = null;
        return;
      case "start":
        return start(a, b);
      case "declare":
        return declare(a);
      case "settle":
        return settle(a, b);
      case "stuck":
        return stuck();
    }
  };
})();
