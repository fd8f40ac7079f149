// @ts-check
// What happens, over one socket for the whole page: browsers keep only six connections to one address, and every stream
// would take one of them for good. It comes back by itself: after a fault, a restart of the gateway, a laptop's sleep.
// Where no socket opens, as proxies may have it, the same streams come over plain HTTP.
import { ApiError, get, request, sessionPath } from "./api.js";
import { lost, toast } from "./state.js";
import { page as words } from "../words/conversation.js";

const PAUSES = [300, 1000, 2000, 4000, 8000];
/** How long the socket may be silent, and how long it may take to open: the gateway says something every 15 s. */
const SILENT = 40_000;
const OPENING = 5000;
/** Silence after which a socket is given up when the user returns to the page. */
const SUSPECT = 20_000;
const LOOK = 5000;
/** Until a socket is tried again where none opens. */
const BLOCKED = 60_000;
/** How long a stream has to have been there for its end to be no fault. */
const SETTLED = 5000;

/**
 * @typedef {Object} StreamOptions
 * @property {string} [session] which; all of them without
 * @property {() => number | string} after where to continue; asked at every begin
 * @property {() => void} [begun] it begins, also again: text that was sent live and not recorded will be sent once more
 * @property {(event: any) => void} event one event
 * @property {(error: ApiError) => void} refused it cannot be watched: no more tries
 */

/**
 * @typedef {Object} Stream
 * @property {StreamOptions} options
 * @property {string} id its name on the socket; empty where it is not followed there
 * @property {AbortController | null} request it is followed by, without a socket
 * @property {number} since when it began
 * @property {number} failures
 * @property {ReturnType<typeof setTimeout> | undefined} timer
 */

/** @type {Set<Stream>} */
const streams = new Set();
/** @type {WebSocket | null} */
let socket = null;
let heard = 0;
/** Whether the socket has ever been open. */
let opened = false;
/** Whether no socket can be opened, so that streams come over plain HTTP. */
let blocked = false;
let failures = 0;
let counter = 0;
/** When to look at the socket, or to connect where no socket is open. @type {ReturnType<typeof setTimeout> | undefined} */
let timer;

/**
 * Follow it until the returned function is called.
 * @param {StreamOptions} options
 * @returns {() => void}
 */
export function follow(options) {
  /** @type {Stream} */
  const stream = { options, id: "", request: null, since: 0, failures: 0, timer: undefined };
  streams.add(stream);
  begin(stream);
  if (!blocked || !timer) connect();
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
  if (!streams.has(stream)) return;
  if (!isOpen()) {
    if (blocked) read(stream);
    return;
  }
  const { session, after } = stream.options;
  stream.id = `${++counter}`;
  say({ ...(session ? { type: "watch", session } : { type: "watch_all" }), id: stream.id, after: after() });
}

/** @param {Stream} stream */
function leave(stream) {
  clearTimeout(stream.timer);
  stream.request?.abort();
  if (streams.delete(stream) && stream.id && isOpen()) say({ type: "unwatch", id: stream.id });
}

/** Follow a stream over plain HTTP, as server-sent events; not in a hidden tab, for connections are few. @param {Stream} stream */
async function read(stream) {
  if (stream.request || document.hidden) return;
  const { session, after, begun, event } = stream.options;
  const { signal } = (stream.request = new AbortController());
  /** @type {Parameters<typeof ended>[1]} */
  let end = {};
  try {
    const path = session ? sessionPath(session, "/events") : "/api/events";
    const { body } = await request("GET", `${path}?after=${encodeURIComponent(after())}`, { signal });
    stream.since = Date.now();
    begun?.();
    const reader = /** @type {ReadableStream} */ (body).pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (let piece = await reader.read(); !piece.done; piece = await reader.read()) {
      const lines = (rest + piece.value).split("\n");
      rest = lines.pop() ?? "";
      for (const line of lines) if (line.startsWith("data: ")) event(JSON.parse(line.slice(6)));
    }
  } catch (error) {
    if (error instanceof ApiError && error.status) end = { status: error.status, error };
    else if (!signal.aborted) lost.value = words.away;
  }
  if (signal.aborted) return;
  stream.request = null;
  ended(stream, end);
}

/** Read nothing more over plain HTTP. */
function unread() {
  for (const stream of streams) {
    stream.request?.abort();
    stream.request = null;
  }
}

function connect() {
  if (socket) return; // it is looked at
  clearTimeout(timer);
  timer = undefined;
  if (!streams.size) return;
  const mine = new WebSocket(`${location.origin.replace("http", "ws")}/api/socket`);
  socket = mine;
  heard = Date.now();
  opened = false;
  mine.onopen = () => {
    heard = Date.now();
    failures = 0;
    opened = true;
    blocked = false;
    unread();
    lost.value = "";
    streams.forEach(begin);
  };
  mine.onmessage = ({ data }) => {
    if (mine !== socket) return;
    heard = Date.now();
    take(JSON.parse(data));
  };
  mine.onclose = () => mine === socket && broken();
  timer = setTimeout(look, OPENING);
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
  else if (!isOpen() || Date.now() - heard > SILENT) broken();
  else timer = setTimeout(look, LOOK);
}

/** It is closed, or might as well be. Only a request learns why: a login that has ended leads to the PIN (api.js). */
async function broken() {
  const failed = !opened;
  drop();
  if (!streams.size) return;
  const pause = blocked ? BLOCKED : /** @type {number} */ (PAUSES[Math.min(failures++, PAUSES.length - 1)]);
  timer = setTimeout(connect, pause);
  try {
    await get("/api/me");
    if (!failed || failures < 2 || blocked || isOpen()) return;
    blocked = true;
    toast(words.noSocket, "error", words.noSocketFix);
    streams.forEach(begin);
  } catch (caught) {
    if (/** @type {ApiError} */ (caught).status !== 401 && failures > 1 && !isOpen()) lost.value = words.away;
  }
}

/** @param {any} message */
function take(message) {
  const stream = [...streams].find((one) => one.id && one.id === message.id);
  if (message.type === "error") console.error(message.error.message);
  else if (!stream) return; // a beat, or the rest of a stream that was left
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

/** The user comes back, or the network does: get at once the events that were lost meanwhile. */
function returned() {
  if (blocked) unread();
  if (document.hidden) return;
  if (blocked) return streams.forEach(begin);
  if (socket && Date.now() - heard > SUSPECT) drop();
  connect();
}
document.addEventListener("visibilitychange", returned);
addEventListener("online", returned);
