// @ts-check
// What happens, over one socket for the whole page: browsers keep only six connections to one address, and every stream
// would take one of them for good. It comes back by itself: after a fault, a restart of the gateway, a laptop's sleep.
import { ApiError, get } from "./api.js";
import { lost } from "./state.js";

const PAUSES = [300, 1000, 2000, 4000, 8000];
/** How long the socket may be silent, and how long it may take to open: the gateway says something every 15 s. */
const SILENT = 40_000;
const OPENING = 15_000;
/** Silence after which it is not waited for when somebody comes back to the page. */
const SUSPECT = 20_000;
const LOOK = 5000;
/** How long a stream has to have been there for its end to be no fault. */
const SETTLED = 5000;

export const AWAY_WORDS = "The connection to the gateway is lost; trying again. Nothing that was sent is lost.";
const NO_SOCKET = "The gateway answers, but lets no socket be opened: what stands in between has to pass WebSockets on.";

/**
 * @typedef {Object} StreamOptions
 * @property {string} [session] which; all of them without
 * @property {() => number | string} after where to go on from; asked at every begin
 * @property {() => void} [begun] it begins, also again: what was said live and not recorded will be said once more
 * @property {(event: any) => void} event one event
 * @property {(error: ApiError) => void} refused it cannot be watched: no more tries
 */

/** @typedef {{options: StreamOptions, id: string, since: number, failures: number, timer: ReturnType<typeof setTimeout> | undefined}} Stream */

/** @type {Set<Stream>} */
const streams = new Set();
/** @type {WebSocket | null} */
let socket = null;
let heard = 0;
let failures = 0;
let counter = 0;
/** When to look at the socket; where there is none, when to connect. @type {ReturnType<typeof setTimeout> | undefined} */
let timer;

/**
 * Follow it until the returned function is called.
 * @param {StreamOptions} options
 * @returns {() => void}
 */
export function follow(options) {
  /** @type {Stream} */
  const stream = { options, id: "", since: 0, failures: 0, timer: undefined };
  streams.add(stream);
  if (isOpen()) begin(stream);
  else connect();
  return () => leave(stream);
}

const isOpen = () => socket?.readyState === WebSocket.OPEN;

/** @param {object} message */
function say(message) {
  socket?.send(JSON.stringify(message));
}

/** @param {Stream} stream */
function begin(stream) {
  clearTimeout(stream.timer);
  if (!isOpen() || !streams.has(stream)) return;
  const { session, after } = stream.options;
  stream.id = `${++counter}`;
  say({ ...(session ? { type: "watch", session } : { type: "watch_all" }), id: stream.id, after: after() });
}

/** @param {Stream} stream */
function leave(stream) {
  clearTimeout(stream.timer);
  if (streams.delete(stream) && stream.id && isOpen()) say({ type: "unwatch", id: stream.id });
}

function connect() {
  clearTimeout(timer);
  if (socket || !streams.size) return;
  const mine = new WebSocket(`${location.origin.replace("http", "ws")}/api/socket`);
  socket = mine;
  heard = Date.now();
  mine.onopen = () => {
    heard = Date.now();
    failures = 0;
    lost.value = "";
    streams.forEach(begin);
  };
  mine.onmessage = ({ data }) => {
    if (mine !== socket) return;
    heard = Date.now();
    take(JSON.parse(data));
  };
  mine.onclose = () => mine === socket && broken();
  timer = setTimeout(look, LOOK);
}

function drop() {
  clearTimeout(timer);
  const mine = socket;
  socket = null;
  mine?.close();
  for (const stream of streams) stream.id = "";
}

/** Whether anybody wants it, and it still says something. */
function look() {
  if (!streams.size) drop();
  else if (Date.now() - heard > (isOpen() ? SILENT : OPENING)) broken();
  else timer = setTimeout(look, LOOK);
}

/** It is closed, or might as well be. Only a request is told why: a login that has ended leads to the PIN (api.js). */
async function broken() {
  drop();
  if (!streams.size) return;
  const pause = /** @type {number} */ (PAUSES[Math.min(failures++, PAUSES.length - 1)]);
  timer = setTimeout(connect, pause);
  try {
    await get("/api/me");
    if (failures > 2 && !isOpen()) lost.value = NO_SOCKET;
  } catch (caught) {
    if (/** @type {ApiError} */ (caught).status !== 401 && failures > 1 && !isOpen()) lost.value = AWAY_WORDS;
  }
}

/** @param {any} message */
function take(message) {
  const stream = [...streams].find((one) => one.id && one.id === message.id);
  if (message.type === "error") console.error(message.error.message);
  else if (!stream) return; // a beat, or the rest of what is not followed any more
  else if (message.type === "watching") {
    stream.since = Date.now();
    stream.options.begun?.();
  } else if (message.type === "events") message.events.forEach(stream.options.event);
  else if (message.type === "ended") ended(stream, message);
}

/** @param {Stream} stream @param {{status?: number, error?: {code: string, message: string, fix: string}}} message */
function ended(stream, { status = 0, error }) {
  stream.id = "";
  if (error && status < 500 && status !== 429) {
    streams.delete(stream);
    stream.options.refused(new ApiError(status, error.code, error.message, error.fix));
    return;
  }
  if (stream.since && Date.now() - stream.since > SETTLED) stream.failures = 0;
  stream.since = 0;
  stream.timer = setTimeout(() => begin(stream), PAUSES[Math.min(stream.failures++, PAUSES.length - 1)]);
}

/** Somebody comes back, or the network does: nobody should wait for what was lost meanwhile. */
function returned() {
  if (document.hidden) return;
  if (socket && Date.now() - heard > SUSPECT) drop();
  connect();
}
document.addEventListener("visibilitychange", returned);
addEventListener("online", returned);
