// @ts-check
// A diagram in the language of Mermaid, drawn in a frame that can reach nothing of the page; its source is a click away.
import { Code } from "./code.js";
import { Icon } from "../icons.js";
import { html, useEffect, useRef, useState } from "../lib.js";
import { theme } from "../session/state.js";
import { diagrams as words } from "../words/files.js";

const LONGEST = 20_000;
const LOWEST = 60;
const HIGHEST = 900;

/** @param {{code: string}} props */
export function Diagram({ code }) {
  const frame = useRef(/** @type {HTMLIFrameElement | null} */ (null));
  const [height, setHeight] = useState(0);
  const [fault, setFault] = useState(code.length > LONGEST ? words.diagramTooLong : "");
  const [source, setSource] = useState(false);
  const dark = theme.value === "dark" || (theme.value === "system" && matchMedia("(prefers-color-scheme: dark)").matches);
  useEffect(() => {
    const heard = (/** @type {MessageEvent} */ event) => {
      const inner = frame.current?.contentWindow;
      if (!inner || event.source !== inner || !event.data?.diagram) return;
      if (event.data.ready) inner.postMessage({ code, dark }, "*"); // its origin has no name
      else if (event.data.fault) setFault(words.diagramFault(String(event.data.fault).slice(0, 200)));
      else setHeight(Math.min(HIGHEST, Math.max(LOWEST, Number(event.data.height) || 0)));
    };
    addEventListener("message", heard);
    return () => removeEventListener("message", heard);
  }, [code, dark]);
  useEffect(() => {
    if (frame.current && height) frame.current.style.height = `${height}px`;
  }, [height, source]);
  return html`<div class="diagram">
    ${fault && html`<p class="notice warning"><${Icon} name="warning" /><span>${fault}</span></p>`}
    ${(fault || source) && html`<${Code} code=${code} language="" />`}
    ${!fault && html`<iframe key=${dark} ref=${frame} hidden=${source} title=${words.diagram} sandbox="allow-scripts" src="/diagram"></iframe>
      <div class="row"><button class="button plain" aria-pressed=${source} onClick=${() => setSource(!source)}>${words.diagramSource}</button>
        ${!height && html`<span class="small quiet" role="status">${words.drawing}</span>`}</div>`}
  </div>`;
}
