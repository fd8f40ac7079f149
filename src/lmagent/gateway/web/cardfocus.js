// @ts-check
// Where the focus goes when a card that was answered goes away.
import { drawn, useLayoutEffect, useRef } from "./lib.js";

/** A reference for the card: who had the focus in it goes on at the next one, or in the conversation, and not at the top of the page. */
export function useCardFocus() {
  const place = useRef(/** @type {HTMLElement | null} */ (null));
  useLayoutEffect(() => {
    const card = place.current;
    return () => {
      if (!card?.contains(document.activeElement)) return;
      drawn(() => /** @type {HTMLElement | null} */ (document.querySelector(".ask") ?? document.querySelector(".transcript"))?.focus());
    };
  }, []);
  return place;
}
