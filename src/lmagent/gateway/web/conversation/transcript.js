// @ts-check
// The conversation: its end is kept in view only while the user is there; older blocks come on scrolling up.
import { answerActions, answersOf, blockNode, draftNodes } from "./blocks.js";
import { Icon } from "../icons.js";
import { html, useEffect, useLayoutEffect, useRef, useSignal } from "../lib.js";
import { Outbox } from "../composer/outbox.js";
import { busy } from "../session/status.js";
import { messages as words } from "../words/conversation.js";

/** @typedef {import("../session/session.js").Session} Session */

const NEAR = 60;

/** @param {{session: Session, children: any}} props `children` come last: cards that wait for the user */
export function Transcript({ session, children }) {
  const place = useRef(/** @type {HTMLElement | null} */ (null));
  const following = useRef(true);
  const top = useRef(0);
  const away = useSignal(false);
  useKeptPlace(session, place, following);
  useOlder(session, place);

  // More may have come below since this scrolling: only scrolling up leaves the end.
  const scrolled = (/** @type {Event} */ event) => {
    const { scrollHeight, scrollTop, clientHeight } = /** @type {HTMLElement} */ (event.currentTarget);
    if (scrollHeight - scrollTop - clientHeight < NEAR) following.current = true;
    else if (scrollTop < top.current) following.current = false;
    top.current = scrollTop;
    away.value = !following.current;
  };
  const latest = () => {
    const element = /** @type {HTMLElement} */ (place.current);
    following.current = true;
    away.value = false;
    element.scrollTop = element.scrollHeight;
  };
  const outgoing = session.outbox.value.length;
  const known = useRef(outgoing);
  useLayoutEffect(() => {
    if (outgoing > known.current && !busy(session.view.peek())) latest(); // what one sends is in view
    known.current = outgoing;
  }, [outgoing]);
  return html`<div class="transcript-frame">
    <div class="transcript" ref=${place} onScroll=${scrolled} tabindex="0" role="region" aria-label=${words.conversation}>
      <${Blocks} session=${session} />
      <${Outbox} session=${session} />
      ${children}
    </div>
    ${away.value && html`<button class="button latest" onClick=${latest}><${Icon} name="latest" />${words.latest}</button>`}
  </div>`;
}

/** @param {{session: Session}} props */
function Blocks({ session }) {
  const { blocks, draft, thinking, waiting, turn, state } = session.live.value;
  const first = session.first.value;
  // One list: streamed text keeps its place in the page, and its selection, when it is complete.
  const answers = answersOf(blocks, state === "idle" ? -1 : turn);
  let opened = 0;
  const nodes = blocks.flatMap((block, index) => {
    const opens = block.kind === "user" && block.turn > opened;
    if (block.kind === "user") opened = block.turn;
    const node = blockNode(block, first + index, opens);
    return answers.has(block) ? [node, answerActions(block, first + index)] : [node];
  });
  nodes.push(...draftNodes(thinking, draft, first + blocks.length));
  nodes.push(...waiting.filter(({ delivery }) => delivery === "submit").map((item) => blockNode(item, item.id)));
  return html`<div class="column">
    ${first > 0 && html`<button class="button plain older" key="older" onClick=${() => session.older()}>
      ${words.older(first)}</button>`}
    ${nodes}
  </div>`;
}

/**
 * Keep the end in view while the user is there, and else the text that they read: older blocks come in above, and
 * blocks get their true height only when they come near.
 * @param {Session} session
 * @param {{current: HTMLElement | null}} place
 * @param {{current: boolean}} following
 */
function useKeptPlace(session, place, following) {
  useLayoutEffect(() => {
    const element = /** @type {HTMLElement} */ (place.current);
    /** @type {{block: Element, top: number} | null} */
    let read = null;
    const look = () => {
      const { left, top, width } = element.getBoundingClientRect();
      const there = document.elementFromPoint(left + width / 2, top + 40)?.closest(".block");
      const block = there && element.contains(there) ? there : element.querySelector(".block");
      read = block ? { block, top: block.getBoundingClientRect().top } : null;
    };
    const settle = () => {
      if (following.current) element.scrollTop = endOf(element);
      else if (read?.block.isConnected) element.scrollTop += read.block.getBoundingClientRect().top - read.top;
    };
    settle();
    const observer = new ResizeObserver(settle);
    observer.observe(element);
    for (const child of element.children) observer.observe(child);
    const added = new MutationObserver(() => {
      for (const child of element.children) observer.observe(child);
    });
    added.observe(element, { childList: true });
    element.addEventListener("scroll", look, { passive: true });
    return () => {
      observer.disconnect();
      added.disconnect();
      element.removeEventListener("scroll", look);
    };
  }, [session]);
}

/**
 * Where the end is in view; of a card that asks something its beginning, should it not fit, until one has scrolled on.
 * @param {HTMLElement} element
 */
function endOf(element) {
  const card = element.querySelector(".ask");
  if (!card) return element.scrollHeight;
  const top = card.getBoundingClientRect().top - element.getBoundingClientRect().top + element.scrollTop;
  return Math.min(element.scrollHeight - element.clientHeight, Math.max(element.scrollTop, top));
}

/** Fetch older blocks as their button comes near. @param {Session} session @param {{current: HTMLElement | null}} place */
function useOlder(session, place) {
  const first = session.first.value;
  useEffect(() => {
    const button = place.current?.querySelector(".older");
    if (!button) return;
    const observer = new IntersectionObserver(
      ([entry]) => {
        const overflows = (place.current?.scrollHeight ?? 0) > (place.current?.clientHeight ?? 0);
        if (entry?.isIntersecting && overflows) session.older();
      },
      { root: place.current, rootMargin: "600px 0px 0px 0px" },
    );
    observer.observe(button);
    return () => observer.disconnect();
  }, [session, first]);
}
