// Read a script's declaration without calling its handlers. Evaluated after the prelude, for `inspect` only, and called
// with the prelude's captured intrinsics. Reads hostile objects: each member once, every list and text bounded.
(workflow, tools) => {
  "use strict";

  const { member, textOf, jsonParse, objectKeys, isArray, create } = tools;

  // More than is allowed; the counts below say how many there are.
  const ENTRIES_MAX = 1000;
  const SCHEDULE_CHARS_MAX = 4096;
  const FIELDS_MAX = 50;
  const FIELD_CHARS_MAX = 80;

  const list = (value) => {
    if (value === undefined) return null;
    const found = [];
    if (typeof value === "string") found[0] = value;
    else if (isArray(value)) {
      for (let i = 0; i < value.length && i < ENTRIES_MAX; i++) {
        const entry = value[i];
        found[i] = typeof entry === "string" ? entry : "";
      }
    } else if (value !== null && typeof value === "object") {
      const names = objectKeys(value);
      for (let i = 0; i < names.length && i < ENTRIES_MAX; i++) found[i] = names[i];
    }
    return found;
  };

  const plain = (value) => {
    if (value === undefined) return null;
    try {
      return jsonParse(textOf(value, SCHEDULE_CHARS_MAX));
    } catch {
      return "?";
    }
  };

  const count = (value) => {
    if (value === null || typeof value !== "object") return 0;
    const length = isArray(value) ? value.length : objectKeys(value).length;
    return typeof length === "number" && length >= 0 && length < 4294967296 ? length : 4294967296;
  };

  // A value that is not a string, such as a function, must not become one.
  const text = (value) => (value === undefined ? null : typeof value === "string" ? value : false);

  const each = (group, describe) => {
    const found = create(null);
    if (group === null || typeof group !== "object") return found;
    const names = objectKeys(group);
    for (let i = 0; i < names.length && i < ENTRIES_MAX; i++) found[names[i]] = describe(group[names[i]]);
    return found;
  };

  // Names that the author may have mistyped.
  const fields = (value) => {
    const found = [];
    if (value === null || typeof value !== "object") return found;
    const names = objectKeys(value);
    for (let i = 0; i < names.length && i < FIELDS_MAX; i++) {
      if (names[i].length <= FIELD_CHARS_MAX) found[found.length] = names[i];
    }
    return found;
  };

  const scheduled = (entry) => ({
    __proto__: null,
    fields: fields(entry),
    handler: typeof entry === "function" || typeof member(entry, "handler") === "function",
    publishes: typeof entry === "function" ? null : list(member(entry, "publishes")),
    schedule: typeof entry === "function" ? null : plain(member(entry, "schedule")),
  });

  const consumer = (entry) => ({
    __proto__: null,
    fields: fields(entry),
    subscribe: list(member(entry, "subscribe")),
    publishes: list(member(entry, "publishes")),
    orderingKey: text(member(entry, "orderingKey")),
    prepare: typeof member(entry, "prepare") === "function",
    mutate: typeof member(entry, "mutate") === "function",
    next: typeof member(entry, "next") === "function",
  });

  const name = member(workflow, "name");
  const topics = member(workflow, "topics");
  const producers = member(workflow, "producers");
  const consumers = member(workflow, "consumers");
  const jobs = member(workflow, "jobs");
  return {
    __proto__: null,
    fields: fields(workflow),
    name: typeof name === "string" ? name : null,
    topics: list(topics),
    topicCount: count(topics),
    producers: each(producers, scheduled),
    consumers: each(consumers, consumer),
    jobs: each(jobs, scheduled),
    handlerCount: count(producers) + count(consumers) + count(jobs),
  };
};
