// @ts-check
// The keys there are, in a dialog.
import { html, render } from "../lib.js";

const GROUPS = /** @type {const} */ ([
  ["Anywhere", [["?", "this list"], ["m", "to the message"], ["n", "a new session"], ["s", "search the sessions"], ["f", "the files beside the conversation"],
    ["Esc", "close dialog or panel; else stop the running turn; else leave the message box"]]],
  ["In the message", [["Enter", "send; while it works: tell it with the next result"], ["Shift Enter", "a new line"], ["Ctrl Enter", "send, on phones as well"],
    ["↑", "in an empty box: what you said before"], ["/", "commands"], ["@", "files"]]],
  ["While one approval is open", [["a", "approve"], ["d", "deny"]]],
  ["In lists", [["↑ ↓", "go through the sessions or the files"], ["← →", "close and open a folder"], ["Enter", "open"]]],
]);

/** The keys as lists. */
export function Keys() {
  return GROUPS.map(([title, keys]) => html`<section key=${title} aria-label=${title}><h3>${title}</h3>
    <dl class="facts keys">${keys.map(([key, words]) => html`
      <dt key=${key}>${key.split(" ").map((one) => html`<kbd>${one}</kbd> `)}</dt><dd>${words}</dd>`)}</dl></section>`);
}

/** Show them until they are closed; then the focus is where it was. */
export function openHelp() {
  if (document.querySelector("dialog.help")) return;
  const place = document.createElement("div");
  document.body.append(place);
  const gone = () => {
    render(null, place);
    place.remove();
  };
  const shown = (/** @type {HTMLDialogElement | null} */ dialog) => dialog && !dialog.open && dialog.showModal();
  render(html`<dialog class="help card" aria-label="Keyboard shortcuts" ref=${shown} onClose=${gone}>
    <form method="dialog" class="row"><h2 class="grow">Keyboard shortcuts</h2><button class="button" autofocus>Close</button></form>
    <${Keys} /><p class="small quiet">Single letters can be switched off in the settings.</p></dialog>`, place);
}
