// @ts-check
// The session's changes in the workspace, file by file, and the way back.
import { sessionPath } from "../session/api.js";
import { Diff } from "../text/diff.js";
import { kindsOf } from "../text/difflines.js";
import { Icon } from "../icons.js";
import { html, useEffect, useState } from "../lib.js";
import { useWindowIs } from "../parts.js";
import { current } from "../session/session.js";
import { store, stored, toast } from "../session/state.js";
import { busy } from "../session/status.js";
import { changes as words } from "../words/files.js";
import { Choice, Nothing, Pending, Sure, useData } from "./kit.js";

const OPEN_AT_ONCE = 4;

/** @typedef {{path: string, lines: string[], added: number, removed: number, isDiff: boolean}} Changed */

/**
 * A unified diff, file by file. A line that is in no diff describes a change that cannot be shown by lines:
 * `created logo.png (… → …)`.
 * @param {string} text
 * @returns {Changed[]}
 */
function byFile(text) {
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
      const [, what = "", path = line, how = ""] = /^(\w+) (.+) \(([^()]*→[^()]*)\)$/.exec(line) ?? [];
      files.push({ path, lines: how ? [`${what}: ${how}`] : [], added: 0, removed: 0, isDiff: false });
    }
  });
  return files;
}

/** @param {string} before @param {string} after the two lines that name a file */
function pathOf(before, after) {
  const names = [after, before].map((line) => line.slice(4).split("\t")[0]?.replace(/^[ab]\//, "") ?? "");
  return names.find((name) => name !== "/dev/null") ?? "";
}

const KEY = "lmagent.diff";
/** Where two columns have room. */
const WIDE = "(min-width: 1100px)";
const ROOMY = "(min-width: 1400px)";

/** How changes are shown: as the user chose, else by the room there is; one below the other on a narrow screen. */
function useLayout() {
  const [chosen, setChosen] = useState(() => stored(KEY, ""));
  const wide = useWindowIs(WIDE);
  const choose = (/** @type {string} */ next) => {
    setChosen(next);
    store(KEY, next);
  };
  return { wide, choose, layout: wide && (chosen ? chosen === "split" : matchMedia(ROOMY).matches) ? "split" : "unified" };
}

/** @param {import("../panels.js").PanelProps} props */
export function Panel({ session }) {
  const diff = useData(session ? sessionPath(session, "/diff") : "");
  const { wide, layout, choose } = useLayout();
  const here = current.value?.id === session ? current.value : null;
  const view = here?.view.value;
  const news = view ? `${view.turn} ${view.state === "idle"} ${view.blocks.filter((block) => block.kind === "tool" && block.status === "ok").length}
    ${view.blocks.filter((block) => block.kind === "notice").length}` : "";
  useEffect(diff.reload, [news]);
  const files = diff.data ? byFile(diff.data.text) : [];
  const layouts = [{ value: "unified", label: words.unified }, { value: "split", label: words.split }];
  return html`<div class=${layout === "split" ? "changes split" : "changes"}>
    <${Ways} running=${!view || busy(view)} any=${files.length > 0} undone=${diff.data?.redo} done=${diff.reload} />
    <${Pending} given=${diff} what=${words.what} />
    ${wide && files.length > 0 && html`<${Choice} label=${words.layout} options=${layouts} value=${layout} choose=${choose} />`}
    ${diff.data && !files.length && html`<${Nothing} icon="edit" title=${words.nothing}>${words.nothingHint}</>`}
    ${files.map((file, index) => html`<${File} key=${file.path} file=${file} first=${index < OPEN_AT_ONCE} split=${layout === "split"} />`)}
  </div>`;
}

/** @param {{running: boolean, any: boolean, undone: boolean, done: () => void}} props */
function Ways({ running, any, undone, done }) {
  const act = async (/** @type {{type: string, [field: string]: unknown}} */ command, /** @type {string} */ told) => {
    if (await current.peek()?.command(command)) toast(told);
    done();
  };
  const undo = () => act({ type: "undo", turn: true }, words.undone);
  const why = running ? words.whileRunning : "";
  return html`<div class="row ways">
    <${Sure} label=${words.undo} icon="undo" disabled=${running || !any} title=${why || (any ? "" : words.nothingToUndo)}
      question=${words.undoQuestion} yes=${words.undoYes} act=${undo} />
    ${undone && html`<${Sure} label=${words.redo} kind="button plain" disabled=${running} title=${why} question=${words.redoQuestion} yes=${words.redoYes}
      act=${() => act({ type: "redo" }, words.redone)} />`}
    ${running && html`<span class="small quiet">${words.whileRunning}</span>`}
  </div>`;
}

/** @param {{file: Changed, first: boolean, split: boolean}} props */
function File({ file, first, split }) {
  const [open, setOpen] = useState(first);
  const text = file.lines.join("\n");
  if (!file.isDiff) return html`<p class="changed notice"><${Icon} name="file" /><span><strong class="wrap">${file.path}</strong>${" "}
    ${file.lines.length > 0 && html`<span class="small quiet">${words.noLines(text)}</span>`}</span></p>`;
  return html`<section class="changed" aria-label=${file.path}>
    <button class="entry" aria-expanded=${open} onClick=${() => setOpen(!open)}><${Icon} name=${open ? "down" : "right"} />
      <span class="wrap grow">${file.path}</span>
      ${stateOf(file) && html`<span class="chip">${stateOf(file)}</span>`}
      <span class="counts small"><ins>+${file.added}</ins> <del>−${file.removed}</del><span class="unseen"> ${words.counted}</span></span></button>
    ${open && html`<${Diff} text=${text} label=${words.of(file.path)} split=${split} />`}
  </section>`;
}

/** Whether the file is new or gone. @param {Changed} file */
function stateOf({ lines }) {
  if (lines[0]?.startsWith("--- /dev/null")) return words.created;
  return lines[1]?.startsWith("+++ /dev/null") ? words.deleted : "";
}
