// @ts-check
// Parts that the agent still needs, each with its remedy and a button where the page can do it.
import { get, post } from "./session/api.js";
import { loadModels } from "./header.js";
import { Icon } from "./icons.js";
import { html, useEffect, useState } from "./lib.js";
import { Line, setDefault, useDownloads } from "./panels/models.js";
import { useEvery } from "./parts.js";
import { pageHref } from "./router.js";
import { useAct } from "./panels/kit.js";
import { tried } from "./session/state.js";
import { setup as words } from "./words/models.js";

/** @typedef {{provider: string, title: string, url: string, answers: boolean, models: string[]}} LookedAt */
/** @typedef {{installed: boolean, install: string, running: boolean, model: string, suggested: {name: string, gb: number, text: string} | null}} Own */
/** @typedef {{server: {state: "ready" | "empty" | "silent", endpoint: string, problem: string, fix: string, looked_at: LookedAt[]}, own: Own | null,
 *   model: string, models: number, sandbox: {name: string, fix: string}, workspace: string, writable: boolean}} Found */

const EACH = 5000;

export function Setup() {
  const [found, setFound] = useState(/** @type {Found | null} */ (null));
  const [problem, setProblem] = useState("");
  const ask = async () => {
    try {
      setFound(await get("/api/setup"));
      setProblem("");
    } catch (error) {
      setProblem(/** @type {import("./session/api.js").ApiError} */ (error).words);
    }
    loadModels();
  };
  useEffect(() => {
    ask();
  }, []);
  const silent = problem !== "" || (found !== null && found.server.state !== "ready");
  useEvery(silent ? EACH : 0, ask);
  if (problem) return html`<${Missing} title=${words.failed(problem)}><${Again} ask=${ask} /></>`;
  if (!found) return null;
  return html`<div class="setup" role="region" aria-label=${words.missing}>
    ${!found.writable && html`<${Missing} title=${words.readOnly(found.workspace)}><p class="small">${words.readOnlyFix} <code>lmagent web --workspace DIR</code></p></>`}
    ${found.server.state !== "ready" && html`<${Server} found=${found} ask=${ask} />`}
    ${found.server.state === "ready" && !found.model && found.models > 1 && html`<${Missing} title=${words.manyModels} kind="info">
      <p>${words.manyModelsAbout(found.models)}</p><p><a class="button" href=${pageHref("models")}><${Icon} name="chip" />${words.chooseModel}</a></p></>`}
    <${Sandbox} name=${found.sandbox.name} /></div>`;
}

/** @param {{title: any, kind?: string, children?: any}} props */
function Missing({ title, kind = "warning", children }) {
  return html`<div class=${`notice ${kind}`} role="status"><${Icon} name=${kind === "info" ? "info" : "warning"} />
    <div class="grow"><strong class="wrap">${title}</strong>${children}</div></div>`;
}

/** @param {{ask: () => void}} props */
function Again({ ask }) {
  return html`<p><button class="button" onClick=${ask}><${Icon} name="refresh" />${words.checkAgain}</button></p>`;
}

/** @param {{name: string}} props */
function Sandbox({ name }) {
  if (!name) return html`<${Missing} title=${words.noSandbox}><p class="small">${words.noSandboxFix} <code>lmagent sandbox probe</code></p></>`;
  if (name === "off") return html`<${Missing} title=${words.sandboxOff}><p class="small">${words.sandboxOffFix}</p></>`;
  if (name === "landlock") return html`<${Missing} title=${words.sandboxWeak}><p class="small">${words.sandboxWeakFix}</p></>`;
  return null;
}

/** @param {{found: Found, ask: () => void}} props */
function Server({ found, ask }) {
  const { server, own } = found;
  const running = server.looked_at.filter((one) => one.answers && one.models.length && one.url !== server.endpoint);
  return html`<${Missing} title=${server.state === "silent" ? words.noServer : words.noModels}>
    ${server.problem && html`<p>${server.problem}</p>`}
    ${running.map((one) => html`<${Other} key=${one.url} server=${one} ask=${ask} />`)}
    ${own && html`<${Own} own=${own} ask=${ask} />`}
    <p class="small">${words.lookedAt}</p>
    <ul class="small">${server.looked_at.map((one) => html`<li key=${one.url}>${one.title} <code>${one.url}</code>: ${
      one.answers ? words.answers(one.models.length) : words.silent}</li>`)}</ul>
    <p class="small quiet">${words.startOther}</p><${Again} ask=${ask} /></>`;
}

/** Another server that runs, with its models to choose from. @param {{server: LookedAt, ask: () => void}} props */
function Other({ server, ask }) {
  const [model, setModel] = useState(server.models[0] ?? "");
  const use = async () => {
    await setDefault(model, server.provider);
    ask();
  };
  return html`<p class="row">${server.models.length > 1 && html`<select class="field" aria-label=${words.useOf(server.title)} value=${model}
      onChange=${(/** @type {any} */ event) => setModel(event.target.value)}>${server.models.map((name) => html`<option key=${name}>${name}</option>`)}</select>`}
    <button class="button main" onClick=${use}>${words.use(server.models.length > 1 ? server.title : `${model} (${server.title})`)}</button></p>`;
}

/** lmagent's own model server. @param {{own: Own, ask: () => void}} props */
function Own({ own, ask }) {
  const [busy, run] = useAct(ask);
  const { rows, ask: look } = useDownloads(ask);
  const start = () => run(async () => {
    await post("/api/models/server");
    await setDefault(own.model, "own");
  });
  const download = async () => {
    await tried(() => post("/api/models/downloads", { name: own.suggested?.name, into: "library" }));
    look();
  };
  if (!own.installed) return html`<p class="small">${words.ownInstall} <code>${own.install}</code></p>`;
  const open = rows.filter((row) => row.into === "library" && row.state !== "done");
  return html`${own.model && html`<p>${words.ownHere(own.model)}</p>
      <p><button class="button main" disabled=${busy} onClick=${start}>${busy ? words.ownStarting : words.ownStart}</button></p>`}
    ${!own.model && !open.length && own.suggested && html`<p>${words.ownSuggested(own.suggested.text)}</p>
      <p><button class="button main" onClick=${download}>${words.ownDownload(own.suggested.name, own.suggested.gb)}</button></p>`}
    ${open.length > 0 && html`<ul class="bare cards">${open.map((row) => html`<${Line} key=${row.id} row=${row} ask=${look} changed=${ask} />`)}</ul>`}`;
}
