// @ts-check
// Files on their way into the workspace: sent one after the other, with a question where one is there already.
import { ApiError, request, sessionPath } from "../session/api.js";
import { wanted } from "../header.js";
import { html, signal } from "../lib.js";
import { beginSession } from "../session/session.js";
import { toast, tried } from "../session/state.js";
import { files as words } from "../words/files.js";

/**
 * @typedef {Object} Question
 * @property {number} id
 * @property {string} text
 * @property {string} yes
 * @property {(yes: boolean) => void} answer
 */

/** The question before a file is written. */
const questions = signal(/** @type {Question[]} */ ([]));
/** Bytes that a file may have to be sent into the workspace, as the gateway says. */
export const largest = signal(Infinity);
/** How often files were uploaded; an open tree is read again then. */
export const uploadCount = signal(0);
/** Files that are being sent. */
export const sending = signal(/** @type {string[]} */ ([]));
let counter = 0;

/** @param {string} text @param {string} yes @returns {Promise<boolean>} */
function ask(text, yes) {
  return new Promise((resolve) => {
    const id = ++counter;
    const answer = (/** @type {boolean} */ said) => {
      questions.value = questions.peek().filter((one) => one.id !== id);
      resolve(said);
    };
    questions.value = [...questions.peek(), { id, text, yes, answer }];
  });
}

/** The questions that wait. */
export function Questions() {
  return html`<div role="alert">${questions.value.map((one) => html`<div key=${one.id} class="sure asking" role="group" aria-label=${one.text}>
    <span>${one.text}</span><button class="button fault" onClick=${() => one.answer(true)}>${one.yes}</button>
    <button class="button plain" onClick=${() => one.answer(false)}>${words.skip}</button></div>`)}</div>`;
}

/** The path of a file in a folder. @param {string} folder @param {string} name */
const inside = (folder, name) => (folder ? `${folder}/${name}` : name);

/**
 * Write one file.
 * @param {string} session @param {string} path @param {File} file @param {string} [over] @param {boolean} [sure]
 * @returns {Promise<import("../session/wire.js").Saved>}
 */
async function put(session, path, file, over = "", sure = false) {
  const query = new URLSearchParams({ path, ...(over && { over }), ...(sure && { sure: "true" }) });
  return (await request("POST", sessionPath(session, `/files?${query}`), { body: file })).json();
}

/** Refuse a file that the gateway would refuse after it was sent. @param {File} file */
function refused(file) {
  if (file.size <= largest.peek()) return false;
  toast(words.tooLarge(file.name, file.size, largest.peek()), "error", words.tooLargeFix);
  return true;
}

/** @param {string} name @param {() => Promise<unknown>} act */
async function shown(name, act) {
  sending.value = [...sending.peek(), name];
  await tried(act);
  sending.value = sending.peek().filter((one) => one !== name);
}

/**
 * Put files into a folder of the workspace.
 * @param {string} session empty for the one of the first screen @param {string} folder @param {Iterable<File>} given
 */
export async function sendFiles(session, folder, given) {
  let sent = 0;
  for (const file of given) {
    if (refused(file)) continue;
    const path = inside(folder, file.name);
    await shown(path, async () => {
      const id = session || (await beginSession(wanted.peek()));
      if (await putAsking(id, path, file)) sent++;
    });
  }
  if (sent) toast(words.uploaded(sent, folder));
  uploadCount.value++;
}

/** @param {string} session @param {string} path @param {File} file @returns {Promise<boolean>} */
async function putAsking(session, path, file) {
  let over = "";
  for (let sure = false; ; ) {
    try {
      await put(session, path, file, over, sure);
      return true;
    } catch (error) {
      const { code = "", message = "" } = error instanceof ApiError ? error : {};
      if (code === "exists" && (await ask(words.replaceQuestion(path), words.replace))) over = "any";
      else if (code === "confirm" && (await ask(words.sureQuestion(message), words.uploadAnyway))) sure = true;
      else if (code !== "exists" && code !== "confirm") throw error;
      else return false;
    }
  }
}

/** The folder for files dropped on a message. */
const UPLOADS = "uploads";
const TRIES = 50;

/**
 * Put a file that belongs to a message into the workspace, under a name that is free.
 * @param {string} session empty for the one of the first screen @param {File} file
 * @returns {Promise<string>} its path; empty where it could not be written, which is shown
 */
export async function sendForMessage(session, file) {
  if (refused(file)) return "";
  const [, stem = file.name, ending = ""] = /^(.+?)(\.[^.]*)?$/.exec(file.name) ?? [];
  let path = "";
  await shown(file.name, async () => {
    const id = session || (await beginSession(wanted.peek()));
    for (let count = 1; count <= TRIES && !path; count++) {
      const name = inside(UPLOADS, count > 1 ? `${stem}-${count}${ending}` : file.name);
      try {
        path = (await put(id, name, file, "", true)).path;
      } catch (error) {
        if (!(error instanceof ApiError && error.code === "exists" && count < TRIES)) throw error;
      }
    }
  });
  return path;
}

/** How a message names a file. @param {string} path */
export const mentioned = (path) => (/[\s"']/.test(path) ? `@"${path}"` : `@${path}`);
