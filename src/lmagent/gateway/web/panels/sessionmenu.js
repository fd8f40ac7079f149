// @ts-check
// What can be done with a session of the list: pin, archive, rename, export, delete.
import { post, remove, sessionPath } from "../api.js";
import { Icon } from "../icons.js";
import { html, useLayoutEffect, useRef, useState } from "../lib.js";
import { go, route } from "../router.js";
import { complain, toast } from "../state.js";
import { common, sessions as words } from "../words/conversation.js";

/** @typedef {import("../wire.js").Row} Row */

/** @param {{row: Row, closed: () => void, changed: () => void}} props */
export function Actions({ row, closed, changed }) {
  const [doing, setDoing] = useState(/** @type {"" | "rename" | "export" | "delete"} */ (""));
  const place = useRef(/** @type {HTMLElement | null} */ (null));
  useLayoutEffect(() => {
    /** @type {HTMLElement | null | undefined} */ (place.current?.querySelector("input, a, button"))?.focus();
  }, [doing]);
  const pressed = (/** @type {KeyboardEvent} */ event) => {
    if (event.key !== "Escape") return;
    event.preventDefault();
    closed();
  };
  const rename = async (/** @type {any} */ event) => {
    event.preventDefault();
    const title = new FormData(event.target).get("title")?.toString().trim() ?? "";
    if (title && title !== row.title && !(await tried(() => post(sessionPath(row.id, "/commands"), { type: "rename", title })))) return;
    closed();
    changed();
  };
  const mark = async (/** @type {{pinned?: boolean, archived?: boolean}} */ marks) => {
    if (!(await tried(() => post(sessionPath(row.id, "/commands"), { type: "mark", ...marks })))) return;
    closed();
    changed();
  };
  const discard = async () => {
    if (!(await tried(() => remove(sessionPath(row.id))))) return;
    toast(words.deleted(row.title || row.id));
    if (route.peek().session === row.id) go("#/");
    changed();
  };
  const exported = (/** @type {string} */ format) => sessionPath(row.id, `/export?format=${format}`);
  return html`<div class="actions" ref=${place} onKeyDown=${pressed}>
    ${doing === "rename" && html`<form class="row" onSubmit=${rename}>
      <input class="field grow" name="title" aria-label=${words.newTitle} defaultValue=${row.title} maxlength="200" /><button class="button">${words.rename}</button></form>`}
    ${doing === "delete" && html`<div class="row" role="group" aria-label=${words.delete}><span class="small">${words.deleteQuestion(row.status === "running")}</span>
      <button class="button fault" onClick=${discard}>${words.delete}</button><button class="button plain" onClick=${closed}>${common.cancel}</button></div>`}
    ${doing === "export" && html`<div class="row" role="group" aria-label=${words.export}>
      ${["md", "html", "jsonl"].map((format) => html`<a key=${format} class="button plain" href=${exported(format)} download onClick=${closed}>${words.formats[/** @type {"md"} */ (format)]}</a>`)}</div>`}
    ${!doing && html`<div class="row">
      <button class="button plain" onClick=${() => mark({ pinned: !row.pinned })}><${Icon} name="pin" />${row.pinned ? words.unpin : words.pin}</button>
      <button class="button plain" onClick=${() => setDoing("rename")}><${Icon} name="edit" />${words.rename}</button>
      <button class="button plain" onClick=${() => setDoing("export")}><${Icon} name="download" />${words.export}</button>
      <button class="button plain" onClick=${() => mark({ archived: !row.archived })}><${Icon} name="archive" />${row.archived ? words.unarchive : words.archive}</button>
      <button class="button plain fault" onClick=${() => setDoing("delete")}><${Icon} name="trash" />${words.delete}</button></div>`}
  </div>`;
}

/** Do it; what goes wrong is told. @param {() => Promise<unknown>} act @returns {Promise<boolean>} */
async function tried(act) {
  try {
    await act();
    return true;
  } catch (error) {
    complain(error);
    return false;
  }
}
