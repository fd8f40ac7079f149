// @ts-check
// A conversation, or the first screen before it exists; both have the composer.
import { Composer } from "../composer/composer.js";
import { Header } from "../header.js";
import { Icon } from "../icons.js";
import { html, useEffect, useLayoutEffect, useState } from "../lib.js";
import { DrawerButton, late } from "../parts.js";
import { current, Session } from "../session/session.js";
import { brand } from "../session/state.js";
import { statusOf } from "../session/status.js";
import { Transcript } from "./transcript.js";
import { chat as words } from "../words/conversation.js";

const Welcome = late("./welcome.js", "Welcome");
const Approvals = late("./conversation/approval.js", "Approvals");
const Again = late("./conversation/again.js", "Again");
const Gone = late("./conversation/again.js", "Gone");
const PlanCard = late("./conversation/approval.js", "PlanCard");

/** @param {{id: string}} props */
export function Chat({ id }) {
  const [example, choose] = useState({ text: "", count: 0 });
  useLayoutEffect(() => { // before the next key comes: until then there is no box for it
    if (!id) return;
    const session = new Session(id);
    current.value = session;
    session.open();
    return () => {
      session.close();
      if (current.peek() === session) current.value = null;
    };
  }, [id]);
  const session = id && current.value?.id === id ? current.value : null;
  const body = id
    ? session && html`<${Conversation} session=${session} key=${id} />`
    : html`<${Welcome} choose=${(/** @type {string} */ text) => choose(({ count }) => ({ text, count: count + 1 }))} />`;
  const gone = session?.phase.value === "gone";
  return html`<${PageTitle} session=${session} gone=${gone} />${gone ? html`<${Nowhere} />` : html`<${Header} session=${session} />`}${body}
    ${(!id || (session && !gone)) && html`<${Composer} key=${`composer ${id}`} session=${session} example=${example} />`}`;
}

/** Above a session that is not there: nothing can be done in it. */
function Nowhere() {
  return html`<header class="bar"><${DrawerButton} /><h1>${words.notFound}</h1></header>`;
}

/** @param {{session: Session | null, gone: boolean}} props */
function PageTitle({ session, gone }) {
  const view = session?.view.value;
  const kind = view && !gone ? statusOf(view, 0, null).kind : "idle";
  const mark = { idle: "", busy: "… ", waiting: "(!) ", done: "", failed: "" }[kind];
  const title = `${mark}${gone ? words.notFound : view?.title || (session ? words.untitled : words.newSession)} · ${brand()}`;
  useEffect(() => {
    document.title = title;
  }, [title]);
  return null;
}

/** @param {{session: Session}} props */
function Conversation({ session }) {
  const phase = session.phase.value;
  if (phase === "loading") return html`<div class="transcript"><p class="empty" role="status">${words.loading}</p></div>`;
  if (phase === "gone") return html`<${Gone} session=${session} />`;
  if (phase === "failed") {
    return html`<div class="transcript"><div class="column"><div class="notice error" role="alert"><${Icon} name="warning" /><div>
      ${words.notShown(session.problem.value)}
      <p><button class="button" onClick=${() => location.reload()}>${words.reload}</button></p></div></div></div></div>`;
  }
  const { approvals, outcome, plan } = session.view.value;
  return html`<${Transcript} session=${session}>
    ${approvals.length > 0 && html`<${Approvals} session=${session} />`}${plan && html`<${PlanCard} session=${session} />`}
    ${outcome && outcome !== "done" && html`<${Again} session=${session} />`}
  </>`;
}
