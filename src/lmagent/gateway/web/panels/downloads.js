// @ts-check
// Downloads of models: one is begun, followed, cancelled and resumed.
import { get, post, remove } from "../api.js";
import { Icon } from "../icons.js";
import { html, useEffect, useRef, useState } from "../lib.js";
import { complain, toast } from "../state.js";
import { downloads as words } from "../words/models.js";
import { size, Sure } from "./kit.js";
import { setDefault } from "./models.js";

/** @typedef {{id: string, name: string, into: "library" | "server", provider: string, state: "running" | "done" | "stopped" | "failed",
 *   have: number, total: number, text: string, model: string, problem: string, fix: string}} Download */

const EACH = 1000;

/**
 * The downloads there are, asked for again while one runs.
 * @param {(rows: Download[]) => void} [ended] called when one that ran has ended
 */
export function useDownloads(ended = () => {}) {
  const [rows, setRows] = useState(/** @type {Download[]} */ ([]));
  const ran = useRef(0);
  const ask = async () => {
    try {
      const { downloads } = await get("/api/models/downloads");
      const runs = downloads.filter((/** @type {Download} */ row) => row.state === "running").length;
      if (runs < ran.current) ended(downloads);
      ran.current = runs;
      setRows(downloads);
    } catch {
      // The frame says that the gateway is away; the list is asked for again by the timer or by the next action.
    }
  };
  const running = rows.some((row) => row.state === "running");
  useEffect(() => {
    ask();
  }, []);
  useEffect(() => {
    if (!running) return;
    const timer = setInterval(ask, EACH);
    return () => clearInterval(timer);
  }, [running]);
  return { rows, ask };
}

/** @param {{actions: string[], provider: string, server?: string, changed: () => void}} props */
export function Downloads({ actions, provider, server = "", changed }) {
  const { rows, ask } = useDownloads(changed);
  const direct = actions.includes("download");
  const [chosen, setInto] = useState("");
  const into = direct ? chosen || "server" : "library";
  const [name, setName] = useState("");
  const [problem, setProblem] = useState("");
  const begin = async (/** @type {Event} */ event) => {
    event.preventDefault();
    setProblem("");
    try {
      await post("/api/models/downloads", { name: name.trim(), into, provider: into === "server" ? provider : "" });
      toast(words.started(name.trim()));
      setName("");
    } catch (error) {
      setProblem(/** @type {import("../api.js").ApiError} */ (error).words);
    }
    ask();
  };
  return html`<section class="section downloads" aria-label=${words.heading}><h2>${words.heading}</h2>
    <form class="row" onSubmit=${begin}>
      ${direct && html`<select class="field" aria-label=${words.into} value=${into} onChange=${(/** @type {any} */ event) => setInto(event.target.value)}>
        <option value="server">${server}</option><option value="library">${words.library}</option></select>`}
      <input class="field grow" aria-label=${words.name} value=${name} maxlength="300" required spellcheck=${false} autocomplete="off"
        aria-describedby="download-hint download-problem" aria-invalid=${problem !== ""}
        onInput=${(/** @type {any} */ event) => setName(event.target.value)} />
      <button class="button" disabled=${!name.trim()}>${words.begin}</button></form>
    <p class="small quiet" id="download-hint">${into === "server" ? words.hintServer(server) : words.hintLibrary}</p>
    <div id="download-problem" role="alert">${problem && html`<p class="notice error">${problem}</p>`}</div>
    ${rows.length > 0 && html`<ul class="bare cards" aria-label=${words.list}>${rows.map((row) => html`<${Line} key=${row.id} row=${row} ask=${ask} changed=${changed} />`)}</ul>`}
  </section>`;
}

/** @param {{row: Download, ask: () => void, changed: () => void}} props */
export function Line({ row, ask, changed }) {
  const act = async (/** @type {() => Promise<unknown>} */ what) => {
    try {
      await what();
    } catch (error) {
      complain(error);
    }
    ask();
  };
  const path = `/api/models/downloads/${encodeURIComponent(row.id)}`;
  const resume = () => act(() => post("/api/models/downloads", { name: row.name, into: row.into, provider: row.provider }));
  const use = async () => {
    await setDefault(row.model, row.into === "library" ? "own" : "");
    changed();
  };
  const share = row.total ? Math.floor((row.have / row.total) * 100) : 0;
  const kind = { running: "busy", done: "done", stopped: "idle", failed: "failed" }[row.state];
  const unfinished = row.state === "stopped" || row.state === "failed";
  return html`<li class="card model" aria-label=${row.name}>
    <div class="grow"><h3 class="wrap">${row.name}</h3>
      ${row.state === "running" && html`<progress aria-label=${words.progressOf(row.name)} max="100" value=${row.total ? share : undefined}></progress>`}
      <p class="row small quiet"><span class=${`chip ${kind}`}>${words[row.state]}</span>
        ${row.state !== "done" && row.have > 0 && html`<span>${words.progress(size(row.have), row.total ? size(row.total) : "")}</span>`}
        ${row.state === "running" && row.total > 0 && html`<span>${words.percent(share)}</span>`}
        ${row.state === "running" && row.text && html`<span class="wrap">${row.text}</span>`}</p>
      ${row.problem && html`<p class="small" role="status">${row.problem}${row.fix && html`<br /><span class="quiet">${row.fix}</span>`}</p>`}</div>
    ${row.state === "running" && html`<button class="button" onClick=${() => act(() => post(`${path}/stop`))}><${Icon} name="stop" />${words.cancel}</button>`}
    ${unfinished && html`<button class="button" onClick=${resume}><${Icon} name="refresh" />${words.resume}</button>
      <${Sure} label=${words.remove} icon="trash" kind="button plain" question=${words.removeQuestion} yes=${words.remove} act=${() => act(() => remove(path))} />`}
    ${row.state === "done" && html`<button class="button" onClick=${use}>${words.use}</button>
      <button class="button plain" onClick=${() => act(() => remove(path))}>${words.dismiss}</button>`}
  </li>`;
}
