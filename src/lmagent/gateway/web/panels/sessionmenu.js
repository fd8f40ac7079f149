// @ts-check
// What can be done with a session of the list: another title, or an end for good.
import { post, remove, sessionPath } from "../api.js";
import { Icon } from "../icons.js";
import { html, useLayoutEffect, useRef, useState } from "../lib.js";
import { go, route } from "../router.js";
import { complain, toast } from "../state.js";

/** @typedef {import("../wire.js").Row} Row */

/** @param {{row: Row, closed: () => void, changed: () => void}} props */
export function Actions({ row, closed, changed }) {
  const [doing, setDoing] = useState(/** @type {"" | "rename" | "delete"} */ (""));
  const place = useRef(/** @type {HTMLElement | null} */ (null));
  useLayoutEffect(() => {
    /** @type {HTMLElement | null | undefined} */ (place.current?.querySelector("input, button"))?.focus();
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
  const discard = async () => {
    if (!(await tried(() => remove(sessionPath(row.id))))) return;
    toast(`“${row.title || row.id}” is deleted`);
    if (route.peek().session === row.id) go("#/");
    changed();
  };
  const question = `Delete it for good?${row.status === "running" ? " It is working: that stops." : ""}`;
  return html`<div class="actions" ref=${place} onKeyDown=${pressed}>
    ${doing === "rename" && html`<form class="row" onSubmit=${rename}>
      <input class="field grow" name="title" aria-label="New title" defaultValue=${row.title} maxlength="200" /><button class="button">Rename</button></form>`}
    ${doing === "delete" && html`<div class="row" role="group" aria-label="Delete"><span class="small">${question}</span>
      <button class="button fault" onClick=${discard}>Delete for good</button><button class="button plain" onClick=${closed}>Keep it</button></div>`}
    ${!doing && html`<div class="row"><button class="button plain" onClick=${() => setDoing("rename")}><${Icon} name="edit" />Rename</button>
      <button class="button plain fault" onClick=${() => setDoing("delete")}><${Icon} name="trash" />Delete</button></div>`}
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
