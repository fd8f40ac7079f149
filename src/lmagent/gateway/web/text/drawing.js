// @ts-check
// In a frame without an origin: draws the diagram that the page sends, and says how large it is, or why it cannot be drawn.

const drawing = /** @type {any} */ (globalThis).mermaid;

addEventListener("message", async (event) => {
  if (event.source !== parent || typeof event.data?.code !== "string") return;
  const say = (/** @type {object} */ said) => parent.postMessage({ diagram: true, ...said }, "*");
  try {
    drawing.initialize({ startOnLoad: false, securityLevel: "strict", theme: event.data.dark ? "dark" : "default", suppressErrorRendering: true });
    const { svg } = await drawing.render("diagram", event.data.code);
    const made = new DOMParser().parseFromString(svg, "text/html").querySelector("svg");
    if (!made) throw new Error("nothing was drawn");
    document.body.replaceChildren(made);
    say({ height: Math.ceil(made.getBoundingClientRect().height) + 16 });
  } catch (error) {
    say({ fault: String(/** @type {any} */ (error)?.message ?? error).split("\n")[0] });
  }
});
parent.postMessage({ diagram: true, ready: true }, "*");
