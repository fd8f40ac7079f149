// @ts-check
// The fold from events to the view: the twin of core/view.py, held to it by tests/gateway/test_web_fold.py.
import { compacted, finished, NO_PACE, started } from "./pace.js";

/** @typedef {import("./wire.js").View} View */
/** @typedef {import("./wire.js").Block} Block */
/** @typedef {import("./wire.js").Event} Event */
/** @typedef {import("./wire.js").Level} Level */

/** The view of a session of which nothing is known. @type {View} */
export const EMPTY = Object.freeze({
  session: "",
  title: "",
  agent: "",
  model: "",
  mode: "normal",
  state: "idle",
  turn: 0,
  outcome: "",
  until: 0,
  blocks: [],
  waiting: [],
  draft: "",
  thinking: "",
  progress: null,
  approvals: [],
  totals: { steps: 0, prompt: 0, completion: 0, cached: 0, context: 0 },
  pace: NO_PACE,
  seconds_left: null,
  work: "normal",
  tasks: [],
  plan: null,
  options: {},
});

// What Python's str.split and str.strip take for space, which is not what JavaScript does.
const SPACE = "\\t-\\r\\x1c-\\x20\\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000";
const WORDS = new RegExp(`[^${SPACE}]+`, "g");
const EDGES = new RegExp(`^[${SPACE}]+|[${SPACE}]+$`, "g");

// Ends a reply that was stopped, for the model alone: see core/messages.py.
const STOPPED = "\n[interrupted here]";
const BY_USER = "interrupted by the user";

/** @type {Record<string, string>} */
const DECIDED = { approved: "Plan approved", revise: "Plan sent back for revision", rejected: "Plan rejected" };

const TITLE_WORDS = 12;
const LONGEST_TITLE = 100;
const LONGEST_GIVEN = 200;
/** What comes before the files that a terminal has added to a message. */
export const ATTACHED = "\n\n[Attached by the user: ";
// Characters that titles may not have: see core/titles.py.
const HIDDEN = /[\0-\x1f\x7f-\x9f\xad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff\u{e0000}-\u{e007f}]/gu;

/** A title on one line. @param {string} text @param {number} [words] how many of its words are enough */
function titleOf(text, words) {
  const found = (text.split(ATTACHED)[0].match(WORDS) ?? []).map((word) => word.replace(HIDDEN, "")).filter(Boolean);
  return strip([...found.slice(0, words).join(" ")].slice(0, words ? LONGEST_TITLE : LONGEST_GIVEN).join(""));
}

/** @param {string} text */
const strip = (text) => text.replace(EDGES, "");

/** @param {number} number */
const thousands = (number) => number.toLocaleString("en-US");

/** @type {Record<string, (view: View, event: Event) => View>} */
const FOLDS = {
  "text.delta": (view, { text }) => ({ ...view, draft: view.draft + text, state: "running", progress: null }),
  "thinking.delta": (view, { text }) => ({ ...view, thinking: view.thinking + text, state: "thinking", progress: null }),
  progress: (view, event) => {
    if (event.waits) return { ...view, state: "queued", progress: null, seconds_left: null };
    const state = view.state === "queued" ? "thinking" : view.state;
    return { ...view, state, progress: event.fraction ?? null, seconds_left: event.seconds_left ?? null };
  },
  retrying: (view) => ({ ...view, draft: "", thinking: "", state: "retrying" }),
  "message.added": messageAdded,
  "tool.started": tool,
  "tool.finished": tool,
  "approval.requested": approval,
  "approval.resolved": approval,
  "subagent.event": (view, event) => approval(view, innermost(event)),
  "turn.started": (view, { turn }) => ({ ...view, turn: turn ?? 0, state: "thinking", outcome: "", until: 0 }),
  "step.started": stepStarted,
  "step.finished": stepFinished,
  "turn.finished": turnFinished,
  "tasks.changed": tasksChanged,
  "plan.proposed": (view, event) => ({ ...view, plan: event }),
  "plan.decided": (view, { decision }) => ({ ...add(view, note("info", DECIDED[decision] ?? "")), plan: null }),
  "work.changed": (view, { mode }) => ({ ...view, work: mode }),
  "session.created": (view, event) => {
    const { session, agent, model = "", mode = "normal", options = {} } = event;
    return { ...(event.replaces ? EMPTY : view), session, agent, model, mode, options };
  },
  "session.forked": (view, event) => {
    return { ...add(view, { kind: "branch", parent: event.parent }), session: event.session, waiting: [] };
  },
  "session.renamed": (view, { title }) => ({ ...view, title: titleOf(title) }),
  "mode.changed": (view, { mode }) => ({ ...view, mode }),
  "model.changed": (view, { model, tokens }) => {
    const text = `Model changed to ${model}. It reads the conversation once: about ${thousands(tokens)} tokens.`;
    return { ...(tokens ? add(view, note("info", text)) : view), model };
  },
  "options.changed": (view, { options }) => ({ ...view, options }),
  "input.received": inputReceived,
  "input.withdrawn": (view, { input }) => ({ ...view, waiting: without(view, input) }),
  "compaction.done": compactionDone,
  "calls.constrained": (view, { model, reason, lifted }) => {
    const now = lifted ? "writes its calls by itself again" : "is made to write valid calls from now on";
    const text = `${model || "the model"} ${now}: ${reason}`;
    return add(view, note("info", text));
  },
  notice: (view, { level, code, text, fix }) => {
    const state = code === "server_away" ? "retrying" : code === "server_back" ? "thinking" : view.state;
    return { ...add(view, note(level, strip(`${text}\n${fix ?? ""}`))), state };
  },
};

/**
 * The view after the event.
 * @param {View} view
 * @param {Event} event
 * @returns {View}
 */
export function reduce(view, event) {
  const fold = Object.hasOwn(FOLDS, event.type) ? FOLDS[event.type] : undefined;
  return fold ? fold(view, event) : view;
}

/** An event of a sub-agent, at any depth. @param {Event} event @returns {Event} */
export function innermost(event) {
  let inner = event;
  while (inner.type === "subagent.event") inner = inner.event;
  return inner;
}

/** @param {Level} level @param {string} text @returns {Block} */
function note(level, text) {
  return { kind: "notice", level, text };
}

/** @param {View} view @param {...Block} blocks @returns {View} */
function add(view, ...blocks) {
  return { ...view, blocks: [...view.blocks, ...blocks] };
}

/** @param {View} view @param {Event} event @returns {View} */
function messageAdded(view, event) {
  const { message, origin, input } = event;
  if (message.role === "assistant" && origin === "recovery" && !event.turn) return view; // no model wrote it
  if (message.role === "assistant") {
    /** @type {Block[]} */
    const added = [];
    for (const part of message.parts) {
      if (part.type === "thinking" && strip(part.text)) added.push({ kind: "thinking", text: part.text });
      if (part.type !== "text") continue;
      const text = origin === "recovery" && part.text.endsWith(STOPPED) ? part.text.slice(0, -STOPPED.length) : part.text;
      if (strip(text)) added.push({ kind: "text", text, turn: event.turn ?? 0 });
    }
    for (const part of message.parts) {
      if (part.type !== "tool_call") continue;
      const used = part.name === "use_tool" && /^\{ *"name": *"([A-Za-z0-9_.:-]+)"/.exec(part.arguments);
      added.push(call(part.id, part.name, used ? used[1] : part.name, "pending"));
    }
    return { ...add(view, ...added), draft: "", thinking: "" };
  }
  if (origin !== "input" && origin !== "steer") return view;
  const sent = view.waiting.find(({ id }) => id === input);
  const turn = event.turn ?? 0;
  if (sent) return { ...add(view, { ...sent, turn }), waiting: without(view, input) };
  const text = textOf(message); // it was imported, or the line of its arrival is damaged
  const title = view.title || titleOf(text, TITLE_WORDS);
  return { ...add(view, { kind: "user", id: input || event.id, text, delivery: "submit", images: 0, turn }), title };
}

/** @param {View} view @param {string | null} input */
const without = (view, input) => view.waiting.filter(({ id }) => id !== input);

/** @param {any} message @returns {string} */
const textOf = ({ parts }) => parts.map((/** @type {any} */ part) => (part.type === "text" ? part.text : "")).join("");

/**
 * @param {string} call_id @param {string} name @param {string} summary @param {"pending" | "running"} status
 * @returns {import("./wire.js").ToolBlock}
 */
function call(call_id, name, summary, status) {
  return { kind: "tool", call_id, tool: name, summary, status, content: "", diff: "", duration: 0, page: null, picture: "" };
}

/** The page in a call's data. @param {any} given @returns {import("./wire.js").PageCard | null} */
function page(given) {
  const { url, title } = given ?? {};
  return typeof url === "string" && typeof title === "string" && /^https?:\/\//.test(url) ? { url, title } : null;
}

/** @param {View} view @param {Event} event @returns {View} */
function tool(view, event) {
  const blocks = [...view.blocks];
  for (let position = blocks.length - 1; position >= 0; position--) {
    const block = blocks[position];
    if (block?.kind !== "tool" || block.call_id !== event.call_id) continue;
    if (event.type === "tool.started") {
      blocks[position] = call(block.call_id, event.tool, event.summary || event.tool, "running");
    } else {
      const { tool: name, status, content, data = {}, duration = 0 } = event;
      const diff = typeof data.diff === "string" ? data.diff : "";
      const picture = typeof data.picture === "string" ? data.picture : "";
      const asked = block.status === "pending" && typeof data.summary === "string" ? data.summary : "";
      const summary = asked || block.summary;
      blocks[position] = {
        kind: "tool", call_id: block.call_id, tool: name, summary, status, content, diff, duration, page: page(data.page),
        picture,
      };
    }
    return { ...view, blocks, state: stateAfter(view, event, "running") };
  }
  if (event.type === "tool.started" && event.call_id.startsWith("lmagent-")) {
    return { ...add(view, call(event.call_id, event.tool, event.summary ?? "", "running")), state: stateAfter(view, event, "running") };
  }
  return view; // the user's own change of a file is no call
}

/** The state after a call's event; a call between turns does not change it. @param {View} view @param {Event} event @param {View["state"]} state */
const stateAfter = (view, event, state) => (event.call_id.startsWith("lmagent-command-") ? view.state : state);

/** @param {View} view @param {Event} event of the session or of a sub-agent of it @returns {View} */
function approval(view, event) {
  if (event.type === "approval.resolved") {
    const approvals = view.approvals.filter((item) => item.id !== event.approval);
    return { ...view, approvals, state: stateAfter(view, event, approvals.length ? "waiting" : "running") };
  }
  if (event.type !== "approval.requested" || view.approvals.some((item) => item.id === event.id)) return view;
  const { id, call_id, tool: name, summary, preview = "", reason = "", grant = "" } = event;
  const pending = { id, call_id, tool: name, summary, preview, reason, grant };
  return { ...view, approvals: [...view.approvals, pending], state: stateAfter(view, event, "waiting") };
}

/** @param {View} view @param {Event} event @returns {View} */
function stepStarted(view, event) {
  return {
    ...view,
    state: "thinking",
    draft: "",
    thinking: "",
    totals: { ...view.totals, context: event.prompt_tokens },
    progress: null,
    pace: started(view.pace, event.prompt_tokens),
    model: event.model || view.model,
  };
}

/** @param {View} view @param {Event} event @returns {View} */
function stepFinished(view, event) {
  const totals = count(view.totals, event.usage);
  return { ...view, totals, pace: finished(view.pace, event), model: event.model || view.model };
}

/** @param {View} view @param {Event} event @returns {View} */
function turnFinished(view, event) {
  const { outcome, reason = "", fix = "", until = 0 } = event;
  const denied = event.cause === "permission" && outcome !== "interrupted";
  /** @type {View} */
  const ended = { ...view, state: "idle", outcome: denied ? "denied" : outcome, draft: "", thinking: "", progress: null, until, approvals: [] };
  /** @type {Block[]} */
  const said = [];
  if (event.proof) {
    said.push(note(event.proof === "verified" ? "info" : "warning", `${event.proof}: ${event.proof_reason ?? ""}`));
  }
  if (outcome === "interrupted" && reason && event.cause !== "plan") {
    said.push(reason === BY_USER ? note("info", "Stopped") : note("warning", `Stopped: ${reason}`));
  } else if (outcome !== "done" && reason && event.cause !== "plan") {
    const text = outcome === "error" ? reason : `${outcome[0].toUpperCase()}${outcome.slice(1)}: ${reason}`;
    said.push(note(outcome === "error" ? "error" : "warning", strip(`${text}\n${fix}`)));
  }
  return said.length ? add(ended, ...said) : ended;
}

/** @param {View} view @param {Event} event @returns {View} */
function tasksChanged(view, { items = [], removed = [] }) {
  const tasks = new Map(view.tasks.map((task) => [task.id, task]));
  for (const task of items) tasks.set(task.id, task);
  for (const id of removed) tasks.delete(id);
  return { ...view, tasks: [...tasks.values()] };
}

/** @param {View["totals"]} totals @param {any} usage @returns {View["totals"]} */
function count(totals, usage) {
  const { prompt_tokens = 0, completion_tokens = 0, cached_tokens = 0 } = usage;
  return {
    steps: totals.steps + 1,
    prompt: totals.prompt + prompt_tokens,
    completion: totals.completion + completion_tokens,
    cached: totals.cached + cached_tokens,
    context: prompt_tokens + completion_tokens || totals.context,
  };
}

/** @param {View} view @param {Event} event @returns {View} */
function inputReceived(view, { id, message, delivery }) {
  const text = textOf(message);
  const title = view.title || titleOf(text, TITLE_WORDS);
  const images = message.parts.filter((/** @type {any} */ part) => part.type === "image").length;
  return { ...view, waiting: [...view.waiting, { kind: "user", id, text, delivery, images, turn: 0 }], title };
}

/** @param {View} view @param {Event} event @returns {View} */
function compactionDone(view, { before_tokens, after_tokens, usage }) {
  const text = `Conversation shortened: ${thousands(before_tokens)} → ${thousands(after_tokens)} tokens`;
  const counted = usage ? count(view.totals, usage) : view.totals;
  const totals = { ...counted, context: view.totals.context };
  return { ...add(view, note("info", text)), pace: compacted(view.pace), totals };
}
