// @ts-check
// The session that is shown: its view, kept up by the stream of its events, and the user's actions in it.
import { ApiError, get, post, randomId, send, sessionPath } from "./api.js";
import { EMPTY, innermost, reduce } from "./fold.js";
import { batch, signal } from "../lib.js";
import { tell } from "../notify.js";
import { keepOutgoing, outgoing } from "../composer/outbox.js";
import { complain, lost, tried } from "./state.js";
import { follow } from "./stream.js";
import { page } from "../words/conversation.js";

/** @typedef {import("./wire.js").Event} Event */
/** @typedef {import("./wire.js").View} View */
/** @typedef {{type: "text", text: string} | {type: "image", media_type: string, data: string}} Part */
/** @typedef {{id: string, parts: Part[], type: "submit" | "steer", error: string, seq?: number}} Outgoing `seq` is given once it is in the log */

const PAGE = 40;
const KEPT_OUTPUT = 4000;
const AGAIN = 2000;
/** Milliseconds within which a stream that begins has told again what sub-agents ask. */
const TOLD = 1000;

/** The session on the screen; null for none. */
export const current = signal(/** @type {Session | null} */ (null));

export class Session {
  /** @param {string} id */
  constructor(id) {
    this.id = id;
    /** The view with every streamed word. */
    this.live = signal(/** @type {View} */ (EMPTY));
    /** The same, which changes only when more changes than the text that is being said: most of the page reads this. */
    this.view = signal(/** @type {View} */ (EMPTY));
    /** Index of the first block that is here: the older ones are fetched on scrolling up to them. */
    this.first = signal(0);
    this.phase = signal(/** @type {"loading" | "live" | "gone" | "failed"} */ ("loading"));
    this.problem = signal("");
    /** What running calls have printed, by call: a map, for a model server may call a call `constructor`. */
    this.outputs = signal(/** @type {ReadonlyMap<string, string>} */ (new Map()));
    /** The last `retrying`, while it is one. */
    this.retry = signal(/** @type {Event | null} */ (null));
    /** When the state began, in milliseconds. */
    this.since = signal(Date.now());
    /** Messages that were sent and are not yet seen in the log; kept in this browser until the gateway has it. */
    this.outbox = signal(outgoing(id));
    /** Messages that were taken back, on their way into the box. */
    this.returned = signal(/** @type {import("./wire.js").UserBlock[]} */ ([]));
    this.seq = 0;
    /** Approvals that sub-agents wait for: their answers are in no log that is followed here. @type {Set<string>} */
    this.lent = new Set();
    /** @type {Event[]} */
    this.arrived = [];
    this.scheduled = false;
    this.closed = false;
    this.fetching = false;
    /** @type {() => void} */
    this.stop = () => {};
  }

  /** Load what there is, follow what comes, and send what an earlier page was sending. */
  async open() {
    this.load();
    for (const { parts, type, id, error } of this.outbox.peek()) if (!error) await this.say(parts, type, id);
  }

  /** @returns {Promise<void>} */
  async load() {
    if (this.closed) return;
    try {
      const { seq, view, first } = await get(sessionPath(this.id, `/view?last=${PAGE}`));
      if (this.closed) return;
      batch(() => {
        this.seq = seq;
        this.arrived = [];
        this.show(view);
        this.first.value = first;
        this.phase.value = "live";
        this.since.value = Date.now();
      });
      this.settle();
      tell(this.id, { ...EMPTY, outcome: view.outcome }, view);
    } catch (caught) {
      const error = /** @type {ApiError} */ (caught);
      if (this.closed) return;
      if (error.status && error.status !== 503) return this.refused(error);
      lost.value = page.away;
      setTimeout(() => this.load(), AGAIN);
      return;
    }
    this.stop();
    this.stop = follow({
      session: this.id,
      after: () => this.seq,
      begun: () => this.begun(),
      event: (event) => this.take(event),
      refused: (error) => this.ended(error),
    });
  }

  /** Its id may have begun anew: then for a moment there is nothing, and then less than was seen. @param {ApiError} error */
  ended(error) {
    if (error.status === 404) setTimeout(() => this.load(), AGAIN);
    else if (error.code === "beyond") this.load();
    else this.refused(error);
  }

  close() {
    this.closed = true;
    this.stop();
  }

  /** @param {ApiError} error */
  refused(error) {
    this.phase.value = error.status === 404 ? "gone" : "failed";
    this.problem.value = error.words;
  }

  /** The server repeats the text of the running step and the questions of sub-agents. */
  begun() {
    this.flush();
    this.arrived = [];
    this.show({ ...this.live.peek(), draft: "", thinking: "" });
    this.outputs.value = new Map();
    const before = this.lent;
    this.lent = new Set();
    if (before.size) setTimeout(() => this.answered([...before].filter((id) => !this.lent.has(id))), TOLD);
  }

  /** What sub-agents asked was answered while nothing came here. @param {string[]} gone */
  answered(gone) {
    this.flush();
    const view = this.live.peek();
    const approvals = view.approvals.filter(({ id }) => !gone.includes(id));
    this.show({ ...view, approvals, state: view.state === "waiting" && !approvals.length ? "running" : view.state });
  }

  /** @param {Event} event */
  take(event) {
    if (event.seq) {
      if (event.seq <= this.seq) return;
      this.seq = event.seq;
    }
    this.arrived.push(event);
    if (this.scheduled) return;
    this.scheduled = true;
    withFrame(() => this.flush());
  }

  /** Fold the events that have arrived: once a frame, however many they are. */
  flush() {
    this.scheduled = false;
    const events = this.arrived;
    if (!events.length || this.closed) return;
    this.arrived = [];
    const before = this.live.peek();
    batch(() => {
      let view = before;
      for (const event of events) {
        view = reduce(view, event);
        this.beside(event);
      }
      if (view.state !== before.state) this.since.value = Date.now();
      this.show(view);
    });
    this.settle();
    tell(this.id, before, this.live.peek());
  }

  /** @param {View} view */
  show(view) {
    this.live.value = view;
    if (!onlyMoreWords(this.view.peek(), view)) this.view.value = view;
  }

  /** What an event means beyond the view. @param {Event} event */
  beside(event) {
    if (event.type === "session.created" && event.replaces) this.anew();
    else if (event.type === "tool.output") this.print(event.call_id, event.text);
    else if (event.type === "subagent.event") this.child(event);
    else if (event.type === "tool.finished" && this.outputs.peek().has(event.call_id)) {
      this.outputs.value = new Map([...this.outputs.peek()].filter(([call]) => call !== event.call_id));
    } else if (event.type === "retrying") this.retry.value = event;
    else if (this.retry.peek() && event.seq) this.retry.value = null;
    if (event.type === "input.received" && event.origin?.kind === "web") this.sent(event.origin.key);
  }

  /** Its id has begun a new conversation: nothing that was here belongs to it. */
  anew() {
    this.first.value = 0;
    this.outputs.value = new Map();
    this.retry.value = null;
  }

  /** @param {string} call @param {string} text */
  print(call, text) {
    const all = (this.outputs.peek().get(call) ?? "") + text;
    this.outputs.value = new Map(this.outputs.peek()).set(call, all.slice(-KEPT_OUTPUT));
  }

  /** A sub-agent's questions, and its calls as output of the call that began it. @param {Event} event */
  child(event) {
    const inner = innermost(event);
    if (inner.type === "approval.requested") this.lent.add(inner.id);
    if (inner.type === "approval.resolved") this.lent.delete(inner.approval);
    if (inner.type === "tool.started") this.print(event.call_id, `${inner.summary || inner.tool}\n`);
  }

  /** Fetch older blocks. @returns {Promise<void>} */
  async older() {
    if (this.fetching || !this.first.peek()) return;
    this.fetching = true;
    await tried(async () => {
      const before = this.first.peek();
      const { blocks, first } = await get(sessionPath(this.id, `/blocks?before=${before}&count=${PAGE}`));
      if (this.first.peek() === before) batch(() => {
        this.show({ ...this.live.peek(), blocks: [...blocks, ...this.live.peek().blocks] });
        this.first.value = first;
      });
    });
    this.fetching = false;
  }

  /** Send a command, and show why it failed, if it did. @param {{type: string, [field: string]: unknown}} command @returns {Promise<boolean>} */
  async command(command) {
    return tried(() => send(this.id, command));
  }

  /**
   * Send a command that withdraws messages: they return to the box.
   * @param {{type: string, [field: string]: unknown}} command
   * @param {import("./wire.js").UserBlock[]} [items] the messages, where its answer does not list them
   */
  async withdraw(command, items) {
    try {
      const { withdrawn = [] } = await send(this.id, command);
      this.returned.value = [...this.returned.peek(), ...(items ?? withdrawn)];
    } catch (error) {
      if (/** @type {ApiError} */ (error).code !== "resolved") complain(error); // else the model has got it by now
    }
  }

  takeBack = (/** @type {import("./wire.js").UserBlock} */ item) => this.withdraw({ type: "withdraw", input: item.id }, [item]);
  /** Stop the turn, and what waits for its end. */
  interrupt = () => this.withdraw({ type: "interrupt" });

  /**
   * Send a message to the agent. It is in the outbox until the log has it, and carries an id, so that it may be
   * sent again where no answer came.
   * @param {Part[]} parts
   * @param {"submit" | "steer"} type
   * @param {string} [id]
   */
  async say(parts, type, id = randomId()) {
    this.keep([...this.outbox.peek().filter((item) => item.id !== id), { id, parts, type, error: "" }]);
    const change = (/** @type {Partial<Outgoing>} */ fields) =>
      this.keep(this.outbox.peek().map((item) => (item.id === id ? { ...item, ...fields } : item)));
    try {
      change({ seq: (await send(this.id, { type, id, message: { role: "user", parts } })).seq });
      this.settle();
    } catch (caught) {
      change({ error: /** @type {ApiError} */ (caught).words });
    }
  }

  /** @param {Outgoing[]} outbox */
  keep(outbox) {
    keepOutgoing(this.id, this.outbox.peek(), outbox);
    this.outbox.value = outbox;
  }

  /** Drop messages from the outbox that are seen in the log. */
  settle() {
    if (this.arrived.length) return; // it is on record, but not on the screen: the next drawing settles it
    const left = this.outbox.peek().filter((item) => !item.seq || item.seq > this.seq);
    if (left.length < this.outbox.peek().length) this.keep(left);
  }

  /** It is in the log, or taken back. @param {string} id */
  sent(id) {
    this.keep(this.outbox.peek().filter((item) => item.id !== id));
  }
}

/** Whether a view differs from another one by the text that is being said alone. @param {View} before @param {View} after */
function onlyMoreWords(before, after) {
  const fields = /** @type {(keyof View)[]} */ (Object.keys(after));
  return fields.every((name) => (name === "draft" || name === "thinking" ? !before[name] === !after[name] : before[name] === after[name]));
}

/** How much longer than drawing took the page rests before it draws again. */
const REST = 3;
/** Milliseconds between two drawings, at least: see PAUSE in providers/transport.py. */
const BETWEEN = 50;
/** Milliseconds after which it draws in any case. A hidden page gets no frames, and questions to the user must be announced all the same. */
const LATEST = 250;
/** When drawing may begin again. */
let rested = 0;

/** Act in a frame that is free. @param {() => void} act changes the drawing */
function withFrame(act) {
  const late = setTimeout(draw, LATEST);
  const wait = rested - performance.now();
  if (wait > 0) setTimeout(ask, wait);
  else ask();
  let done = false;
  function ask() {
    requestAnimationFrame(draw);
  }
  function draw() {
    if (done) return;
    done = true;
    clearTimeout(late);
    const begun = performance.now();
    act();
    setTimeout(() => { // after the frame: layout and paint are in it
      const now = performance.now();
      rested = Math.max(begun + BETWEEN, now + Math.min(LATEST, REST * (now - begun)));
    });
  }
}

let begun = "";
let begunWith = "";

/**
 * Begin it, or take the one that a file has begun, if its agent is to do it.
 * @param {{agent?: string, mode: string, model: string, options?: import("./wire.js").SessionOptions}} wanted how it is to work; empty for as the settings say
 * @returns {Promise<string>} its id
 */
export async function beginSession({ agent = "", mode, model, options }) {
  if (agent !== begunWith) begun = "";
  if (begun && !(await get(sessionPath(begun)).then(Boolean, () => false))) begun = ""; // deleted meanwhile
  if (!begun) {
    ({ session: begun } = await post("/api/sessions", { agent, mode: mode || null, model, options }));
    begunWith = agent;
    return begun;
  }
  if (mode) await post(sessionPath(begun, "/commands"), { type: "set_mode", mode });
  if (model) await post(sessionPath(begun, "/commands"), { type: "set_model", model });
  if (options) await post(sessionPath(begun, "/commands"), { type: "set_options", options });
  return begun;
}

/** The next first message begins another one. */
export function leaveFirst() {
  begun = "";
}
