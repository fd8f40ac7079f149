// @ts-check
// The frame around everything: sessions and links at the left, the conversation or a page, a panel beside it.
import { Chat } from "./conversation/chat.js";
import { Icon } from "./icons.js";
import { drawn, html, useEffect, useErrorBoundary, useLayoutEffect, useRef, useState } from "./lib.js";
import { logOut } from "./login.js";
import { NotifyButton } from "./notify.js";
import { PANELS, panelsAt } from "./panels.js";
import { DrawerButton, Square } from "./parts.js";
import { go, pageHref, route, sessionHref } from "./router.js";
import { announced, brand, dismiss, drawer, lost, me, setTheme, theme, toasts } from "./session/state.js";
import { page as texts, shell as words } from "./words/conversation.js";
import "./panels/keys.js";

/** @typedef {import("./panels.js").PanelRow} PanelRow */

/** The whole page after the login. */
export function Shell() {
  const { session, panel, page, rest } = route.value;
  const beside = PANELS.find((row) => row.place === "beside" && row.id === panel);
  const whole = page ? PANELS.find((row) => row.place === "page" && row.id === page) : undefined;
  useEscape();
  return html`<div class=${beside ? "frame beside" : "frame"}>
    <a class="button skip" href="#content" onClick=${focusMessage}>${words.toMessage}</a>
    <div class="banner" role="alert">
      ${lost.value && html`<div class="lost"><${Icon} name="warning" /><span>${lost.value}</span></div>`}
    </div>
    <${Side} session=${session} page=${page} />
    <button class=${drawer.value === "side" ? "scrim open" : "scrim"} aria-label=${words.closeList} tabindex="-1"
      onClick=${() => (drawer.value = "")}></button>
    <main class="place" id="content" tabindex="-1" inert=${drawer.value === "side"}>
      ${page ? html`<${Page} key=${page} row=${whole} id=${page} rest=${rest} />` : html`<${Chat} id=${session} />`}
    </main>
    ${beside && html`<${Beside} key=${beside.id} row=${beside} session=${session} rest=${rest} />`}
    <${Toasts} />
    <div class="unseen" role="status" aria-live="polite">${announced.value}</div>
  </div>`;
}

/** @param {Event} event */
function focusMessage(event) {
  event.preventDefault();
  (document.getElementById("message") ?? document.getElementById("content"))?.focus();
}

/** Give the focus back to the button that opened the closed part. @param {string} name */
function focusOn(name) {
  const lost = document.activeElement === document.body || document.activeElement?.closest(".side, .panel");
  const button = document.querySelector(`main [aria-label="${name}"]`) ?? document.querySelector("main .controls button"); // a phone's menu
  if (lost) /** @type {HTMLElement | null} */ (button)?.focus();
}

/** Escape closes what lies over the conversation. */
function useEscape() {
  useEffect(() => {
    const pressed = (/** @type {KeyboardEvent} */ event) => {
      if (event.key !== "Escape" || event.defaultPrevented) return;
      if (drawer.peek() === "side") drawer.value = "";
      else if (route.peek().panel) go(sessionHref(route.peek().session));
      else return;
      event.preventDefault(); // else it would stop the turn, too
    };
    addEventListener("keydown", pressed);
    return () => removeEventListener("keydown", pressed);
  }, []);
}

/** @param {{session: string, page: string}} props */
function Side({ session, page }) {
  const side = useRef(/** @type {HTMLElement | null} */ (null));
  const open = drawer.value === "side";
  useLayoutEffect(() => { // not later: it would take the focus from where the user has gone meanwhile
    if (!open) return;
    side.current?.querySelector("button")?.focus();
    return () => focusOn(words.drawer);
  }, [open]);
  return html`<div class=${open ? "side open" : "side"} ref=${side}>
    <header class="brand"><img src="/static/icon.svg" alt="" /><span class="grow cut">${brand()}</span>
      <${Square} icon="close" label=${words.closeList} kind="only-narrow" onClick=${() => (drawer.value = "")} />
    </header>
    <button class="button" onClick=${newSession}><${Icon} name="plus" />${words.newSession}</button>
    <div class="panels">
      ${panelsAt("side", session).map((row) => html`<${Loaded} key=${row.id} row=${row} session=${session} rest="" />`)}
    </div>
    <nav aria-label=${words.pages}>
      <ul class="bare">
        ${panelsAt("page", session).map((row) => html`<li key=${row.id}>
          <a class="entry" href=${pageHref(row.id)} aria-current=${page === row.id ? "page" : undefined}>
            <${Icon} name=${row.icon} />${row.title}</a></li>`)}
      </ul>
    </nav>
    <div class="foot">
      <${ThemeButton} /><${NotifyButton} /><span class="grow"></span>
      ${me.value?.caller === "page" && html`<${Square} icon="out" label=${words.logOut} onClick=${logOut} />`}
    </div>
  </div>`;
}

function newSession() {
  go("#/");
  drawer.value = "";
  drawn(() => document.getElementById("message")?.focus());
}

const THEMES = /** @type {const} */ ({
  system: { next: "light", icon: "system", label: words.themeSystem },
  light: { next: "dark", icon: "sun", label: words.themeLight },
  dark: { next: "system", icon: "moon", label: words.themeDark },
});

function ThemeButton() {
  const { next, icon, label } = THEMES[theme.value];
  return html`<${Square} icon=${icon} label=${label} onClick=${() => setTheme(next)} />`;
}

/** @param {{row: PanelRow | undefined, id: string, rest: string}} props */
function Page({ row, id, rest }) {
  useEffect(() => {
    document.title = `${row?.title ?? id} · ${brand()}`;
  }, [row]);
  return html`<header class="bar"><${DrawerButton} /><h1>${row?.title ?? words.noPage}</h1></header>
    <div class="page">${row
      ? html`<${Loaded} row=${row} session="" rest=${rest} />`
      : html`<p class="empty">${words.noPageHint(id)} <a href="#/">${words.home}</a></p>`}</div>`;
}

/** @param {{row: PanelRow, session: string, rest: string}} props */
function Beside({ row, session, rest }) {
  useLayoutEffect(() => () => focusOn(row.title), []);
  return html`<section class="panel" aria-label=${row.title}>
    <header class="bar"><h2 class="grow">${row.title}</h2>
      <${Square} icon="close" label=${words.close(row.title)} onClick=${() => go(sessionHref(session))} /></header>
    <div class="body"><${Loaded} row=${row} session=${session} rest=${rest} /></div>
  </section>`;
}

/** A panel, fetched when it is first shown; a fault in it stays in it. @param {{row: PanelRow, session: string, rest: string}} props */
function Loaded({ row, session, rest }) {
  const [panel, setPanel] = useState(/** @type {{Panel: any} | null} */ (null));
  const [failed, setFailed] = useState(false);
  const [tries, setTries] = useState(0);
  const [fault, again] = useErrorBoundary((error) => console.error(error));
  useEffect(() => {
    let here = true;
    setFailed(false);
    row.load().then((module) => here && setPanel(module), () => here && setFailed(true));
    return () => {
      here = false;
    };
  }, [row, tries]);
  if (failed || fault) {
    return html`<div class="notice error"><${Icon} name="warning" /><div>
      ${words.notShown(row.title, failed ? texts.unloaded : String(fault?.message ?? fault))}
      <p><button class="button" onClick=${failed ? () => setTries(tries + 1) : again}>${words.again}</button></p></div></div>`;
  }
  return panel && html`<${panel.Panel} session=${session} rest=${rest} />`;
}

function Toasts() {
  return html`<div class="toasts" role="log" aria-label=${words.messages}>
    ${toasts.value.map((item) => html`<div key=${item.id} class=${`toast ${item.level}`}>
      <div class="grow">${item.text}${item.fix && html`<div class="quiet small">${item.fix}</div>`}</div>
      <${Square} icon="close" label=${words.dismiss} onClick=${() => dismiss(item.id)} />
    </div>`)}
  </div>`;
}
