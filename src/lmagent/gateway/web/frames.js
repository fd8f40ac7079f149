// @ts-check
// When to draw what arrives: at once after a silence, then as often as the gateway sends text, and never for more than a
// quarter of the time, so that one can scroll and write while a long answer streams, on a slow machine too.

/** How much longer than drawing took the page rests before it draws again. */
const REST = 3;
/** Milliseconds between two drawings, at least: see PAUSE in providers/transport.py. */
const BETWEEN = 50;
/** Milliseconds after which it draws in any case. A page that is not looked at gets no frames; what waits for a person must be told all the same. */
const LATEST = 250;
/** When drawing may begin again. */
let rested = 0;

/** Do it with a frame that is free for it. @param {() => void} act it changes what is drawn */
export function withFrame(act) {
  const late = setTimeout(draw, LATEST);
  const wait = rested - performance.now();
  if (wait > 0) setTimeout(ask, wait);
  else ask();
  let done = false;
  function ask() {
    requestAnimationFrame(draw);
  }
  function draw() {
    if (done) return;
    done = true;
    clearTimeout(late);
    const begun = performance.now();
    act();
    setTimeout(() => { // after the frame: layout and paint are in it
      const now = performance.now();
      rested = Math.max(begun + BETWEEN, now + Math.min(LATEST, REST * (now - begun)));
    });
  }
}
