// @ts-check
// The keys there are, in a dialog.
import { html, render } from "../lib.js";
import { keys as words } from "../words/settings.js";

/** The keys as lists. */
export function Keys() {
  return words.groups.map(([title, keys]) => html`<section key=${title} aria-label=${title}><h3>${title}</h3>
    <dl class="facts keys">${keys.map(([key, does]) => html`
      <dt key=${key}>${key.split(" ").map((one) => html`<kbd>${one}</kbd> `)}</dt><dd>${does}</dd>`)}</dl></section>`);
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
  render(html`<dialog class="help card" aria-label=${words.heading} ref=${shown} onClose=${gone}>
    <form method="dialog" class="row"><h2 class="grow">${words.heading}</h2><button class="button" autofocus>${words.close}</button></form>
    <${Keys} /><p class="small quiet">${words.off}</p></dialog>`, place);
}
