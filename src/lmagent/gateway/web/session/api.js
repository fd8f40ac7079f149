// @ts-check
// Requests to the gateway: JSON in, JSON out, its errors as `ApiError`.
import { login, lost } from "./state.js";
import { page as words } from "../words/conversation.js";

/** A request that was answered with an error, or not at all (`status` 0). */
export class ApiError extends Error {
  /**
   * @param {number} status of HTTP; 0 when nothing answered
   * @param {string} code for programs
   * @param {string} message in words
   * @param {string} fix what to do
   */
  constructor(status, code, message, fix) {
    super(message);
    this.status = status;
    this.code = code;
    this.fix = fix;
  }

  /** The error and its remedy. */
  get words() {
    return this.fix ? `${this.message}: ${this.fix}` : this.message;
  }
}

/**
 * @param {string} method
 * @param {string} path
 * @param {{json?: unknown, body?: BodyInit, signal?: AbortSignal}} [options]
 * @returns {Promise<Response>} a success
 * @throws {ApiError}
 */
export async function request(method, path, { json, body, signal } = {}) {
  /** @type {Record<string, string>} */
  const headers = {};
  if (method !== "GET") headers["X-LMAgent-Request"] = "1";
  if (json !== undefined) headers["Content-Type"] = "application/json";
  let response;
  try {
    const sent = json === undefined ? body : JSON.stringify(json);
    response = await fetch(path, { method, headers, body: sent, signal, credentials: "same-origin" });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new ApiError(0, "unreachable", words.unreachable, words.unreachableFix);
  }
  lost.value = "";
  if (response.ok) return response;
  if (response.status === 401) login.value = "out";
  const told = await response.json().catch(() => null);
  const { code = "", message = "", fix = "" } = told?.error ?? {};
  throw new ApiError(response.status, code, message || `the gateway answered ${response.status}`, fix);
}

/**
 * @param {string} path
 * @param {AbortSignal} [signal]
 * @returns {Promise<any>}
 */
export async function get(path, signal) {
  return (await request("GET", path, { signal })).json();
}

/**
 * @param {string} path
 * @param {unknown} [json]
 * @returns {Promise<any>}
 */
export async function post(path, json = {}) {
  return (await request("POST", path, { json })).json();
}

/**
 * @param {string} path
 * @returns {Promise<any>}
 */
export async function remove(path) {
  return (await request("DELETE", path)).json();
}

/** @param {string} id @param {string} [rest] */
export function sessionPath(id, rest = "") {
  return `/api/sessions/${encodeURIComponent(id)}${rest}`;
}

/** The address of a file's content. @param {string} path */
export const rawOf = (path) => `/api/files/raw?path=${encodeURIComponent(path)}`;

/** 128 random bits in hex; works over plain HTTP too, where `crypto.randomUUID` is not there. */
export function randomId() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

const PAUSES = [500, 1000, 2000, 4000, 8000];

/**
 * Send a command to a session. One that carries an id is repeated for as long as nothing answers, and a while longer
 * than a gateway takes to end: it is taken once.
 * @param {string} session
 * @param {{type: string, id?: string, [field: string]: unknown}} command
 * @returns {Promise<{seq: number, session: string, withdrawn?: import("./wire.js").UserBlock[]}>}
 * @throws {ApiError}
 */
export async function send(session, command) {
  for (let attempt = 0; ; attempt++) {
    try {
      return await post(sessionPath(session, "/commands"), command);
    } catch (error) {
      const status = command.id && error instanceof ApiError ? error.status : -1;
      if (status !== 0 && !(status === 503 && attempt < PAUSES.length)) throw error;
      await new Promise((resolve) => setTimeout(resolve, PAUSES[Math.min(attempt, PAUSES.length - 1)]));
    }
  }
}
