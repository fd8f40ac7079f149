// @ts-check
// A unified diff: signs, words for a screen reader and colours; long ones are cut with their count.
import { kindsOf } from "./difflines.js";
import { html, useState } from "./lib.js";
import { visible } from "./visible.js";

const SHOWN = 200;

/** @param {{text: string, label?: string}} props */
export function Diff({ text, label = "Changes" }) {
  const [all, setAll] = useState(false);
  const lines = visible(text).replace(/\n$/, "").split("\n");
  const kinds = kindsOf(lines);
  const shown = all ? lines : lines.slice(0, SHOWN);
  return html`<div class="diff">
    <pre tabindex="0" role="region" aria-label=${label}>${shown.map((line, index) => {
      const kind = kinds[index];
      const Line = kind === "added" ? "ins" : kind === "removed" ? "del" : "span";
      return html`<${Line} class=${`line ${kind}`}>${line || " "}${"\n"}</>`;
    })}</pre>
    ${shown.length < lines.length && html`<button class="button plain" onClick=${() => setAll(true)}>
      Show ${lines.length - shown.length} more lines</button>`}
  </div>`;
}

/** A preview of what is asked for: as a diff where it is one, else as it is. @param {{text: string, label: string}} props */
export function Preview({ text, label }) {
  const isDiff = /^(@@ |\+\+\+ |--- )/m.test(text);
  if (isDiff) return html`<${Diff} text=${text} label=${label} />`;
  return html`<pre class="output" tabindex="0" role="region" aria-label=${label}>${visible(text)}</pre>`;
}
