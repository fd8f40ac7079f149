// @ts-check
// What the session changed in the workspace, file by file, and the way back.
import { sessionPath } from "../api.js";
import { Diff } from "../diff.js";
import { kindsOf } from "../difflines.js";
import { Icon } from "../icons.js";
import { html, useEffect, useState } from "../lib.js";
import { current } from "../session.js";
import { toast } from "../state.js";
import { busy } from "../status.js";
import { Pending, useData } from "./data.js";
import { Nothing, Sure } from "./kit.js";

const OPEN_AT_ONCE = 4;

/** @typedef {{path: string, lines: string[], added: number, removed: number, isDiff: boolean}} Changed */

/**
 * A unified diff, file by file. A line that is in no diff tells of a change that cannot be shown by lines:
 * `created logo.png (… → …)`.
 * @param {string} text
 * @returns {Changed[]}
 */
export function byFile(text) {
  const lines = text.replace(/\n$/, "").split("\n");
  const kinds = kindsOf(lines);
  /** @type {Changed[]} */
  const files = [];
  lines.forEach((line, index) => {
    const kind = kinds[index];
    const last = files.at(-1);
    if (kind === "place" && line.startsWith("--- ")) {
      files.push({ path: pathOf(line, lines[index + 1] ?? ""), lines: [line], added: 0, removed: 0, isDiff: true });
    } else if (last && (kind !== "same" || /^[ \\]/.test(line))) {
      last.lines.push(line);
      if (kind === "added") last.added++;
      else if (kind === "removed") last.removed++;
    } else if (line) {
      files.push({ path: /^\w+ (.+) \([^()]*→[^()]*\)$/.exec(line)?.[1] ?? line, lines: [line], added: 0, removed: 0, isDiff: false });
    }
  });
  return files;
}

/** @param {string} before @param {string} after the two lines that name a file */
function pathOf(before, after) {
  const names = [after, before].map((line) => line.slice(4).split("\t")[0]?.replace(/^[ab]\//, "") ?? "");
  return names.find((name) => name !== "/dev/null") ?? "";
}

/** @param {import("../panels.js").PanelProps} props */
export function Panel({ session }) {
  const diff = useData(session ? sessionPath(session, "/diff") : "");
  const here = current.value?.id === session ? current.value : null;
  const view = here?.view.value;
  const news = view ? `${view.turn} ${view.state === "idle"} ${view.blocks.filter((block) => block.kind === "tool" && block.status === "ok").length}
    ${view.blocks.filter((block) => block.kind === "notice").length}` : "";
  useEffect(diff.reload, [news]);
  const files = diff.data ? byFile(diff.data.text) : [];
  return html`<div class="changes">
    <${Ways} running=${!view || busy(view)} any=${files.length > 0} undone=${diff.data?.redo} done=${diff.reload} />
    <${Pending} given=${diff} what="the changes" />
    ${diff.data && !files.length && html`<${Nothing} icon="edit" title="Nothing is changed">What the agent writes in this session is shown here, line by line.</>`}
    ${files.map((file, index) => html`<${File} key=${file.path} file=${file} first=${index < OPEN_AT_ONCE} />`)}
  </div>`;
}

/** @param {{running: boolean, any: boolean, undone: boolean, done: () => void}} props */
function Ways({ running, any, undone, done }) {
  const act = async (/** @type {{type: string, [field: string]: unknown}} */ command, /** @type {string} */ words) => {
    if (await current.peek()?.command(command)) toast(words);
    done();
  };
  const undo = () => act({ type: "undo", turn: true }, "what the last turn changed is taken back");
  const why = running ? "not while it works" : "";
  return html`<div class="row ways">
    <${Sure} label="Undo the last turn" icon="undo" disabled=${running || !any} title=${why || (any ? "" : "there is nothing to take back")}
      question="Take back what the last turn changed in the files?" yes="Undo it" act=${undo} />
    ${undone && html`<${Sure} label="Redo" kind="button plain" disabled=${running} title=${why} question="Redo the last undo?" yes="Redo it"
      act=${() => act({ type: "redo" }, "done again")} />`}
    ${running && html`<span class="small quiet">Undo and redo wait for the end of the turn.</span>`}
  </div>`;
}

/** @param {{file: Changed, first: boolean}} props */
function File({ file, first }) {
  const [open, setOpen] = useState(first);
  const text = file.lines.join("\n");
  if (!file.isDiff) return html`<p class="changed notice"><${Icon} name="file" /><span>${text}</span></p>`;
  return html`<section class="changed" aria-label=${file.path}>
    <button class="entry" aria-expanded=${open} onClick=${() => setOpen(!open)}><${Icon} name=${open ? "down" : "right"} />
      <span class="wrap grow">${file.path}</span>
      <span class="counts small"><ins>+${file.added}</ins> <del>−${file.removed}</del><span class="unseen"> lines added and removed</span></span></button>
    ${open && html`<${Diff} text=${text} label=${`Changes of ${file.path}`} />`}
  </section>`;
}
