// @ts-check
// Icons, drawn for 24 × 24 with lines; they are decoration beside text or labels.
import { html } from "./lib.js";

const PATHS = {
  menu: "M4 7h16M4 12h16M4 17h16",
  plus: "M12 5v14M5 12h14",
  close: "M6 6l12 12M18 6L6 18",
  send: "M12 19V6M6 11l6-6 6 6",
  stop: "M7 7h10v10H7z",
  check: "M5 12.5l4.5 4.5L19 7.5",
  dots: "M6 12h.01M12 12h.01M18 12h.01",
  down: "M6 9l6 6 6-6",
  right: "M9 6l6 6-6 6",
  latest: "M12 5v13M6 13l6 6 6-6",
  image: "M4 5h16v14H4zM4 16l5-5 4 4 3-3 4 4M15.5 9h.01",
  clip: "M20 11l-8.5 8.5a5 5 0 0 1-7-7L13 4a3.4 3.4 0 0 1 5 5l-8.5 8.5a1.8 1.8 0 0 1-2.5-2.5L15 7",
  edit: "M5 19h3l10-10-3-3L5 16zM13.5 7.5l3 3",
  bell: "M6 17V11a6 6 0 0 1 12 0v6l1.5 1.5h-15zM10.5 21h3",
  sun: "M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8zM12 3v2M12 19v2M3 12h2M19 12h2M5.6 5.6L7 7M17 17l1.4 1.4M5.6 18.4L7 17M17 7l1.4-1.4",
  moon: "M20 14.5A8.5 8.5 0 0 1 9.5 4 8.5 8.5 0 1 0 20 14.5z",
  system: "M4 5h16v11H4zM9 20h6M12 16v4",
  folder: "M3 6h6l2 2h10v11H3z",
  copy: "M9 9h11v11H9zM5 15H4V4h11v1",
  left: "M15 6l-6 6 6 6",
  file: "M6 3h8l4 4v14H6zM14 3v4h4",
  list: "M8 6h12M8 12h12M8 18h12M4 6h.01M4 12h.01M4 18h.01",
  tasks: "M4 6l1.5 1.5L8 5M4 13l1.5 1.5L8 12M11 6.5h9M11 13.5h9M4 19h16",
  tree: "M6 4v12a2 2 0 0 0 2 2h3M6 9h5M13 6h7v6h-7zM13 15h7v6h-7z",
  tool: "M14 6a4 4 0 0 1 5-1l-3 3 1 2 2 1 3-3a4 4 0 0 1-6 5l-8 8-3-3 8-8a4 4 0 0 1 1-4z",
  pulse: "M3 12h4l3-8 4 16 3-8h4",
  clock: "M12 3a9 9 0 1 0 0 18 9 9 0 0 0 0-18zM12 7v5l3 2",
  chart: "M4 20V10M10 20V4M16 20v-7M21 20H3",
  agent: "M12 4a4 4 0 1 0 0 8 4 4 0 0 0 0-8zM4 20c1-9 15-9 16 0",
  chip: "M7 7h10v10H7zM10 3v4M14 3v4M10 17v4M14 17v4M3 10h4M3 14h4M17 10h4M17 14h4",
  warning: "M12 4l9 16H3zM12 10v4M12 17h.01",
  info: "M12 3a9 9 0 1 0 0 18 9 9 0 0 0 0-18zM12 11v5M12 8h.01",
  shield: "M12 3l8 3v6c0 5-4 8-8 9-4-1-8-4-8-9V6z",
  search: "M11 4a7 7 0 1 0 0 14 7 7 0 0 0 0-14zM16 16l5 5",
  trash: "M5 7h14M10 4h4M7 7l1 13h8l1-13M10 11v6M14 11v6",
  refresh: "M20 12a8 8 0 1 1-2.5-5.8M20 4v4h-4",
  download: "M12 4v11M7 10.5l5 5 5-5M5 20h14",
  upload: "M12 16V5M7 9.5l5-5 5 5M5 20h14",
  pin: "M9 4h6l-1 6 3 3H7l3-3zM12 13v7",
  archive: "M4 5h16v4H4zM6 9v10h12V9M10 13h4",
  undo: "M9 14L4 9l5-5M4 9h10a6 6 0 0 1 0 12h-3",
  sliders: "M4 7h9M17 7h3M15 4.5v5M4 17h3M11 17h9M9 14.5v5",
  out: "M10 4H5v16h5M14 8l4 4-4 4M18 12H9",
};

/** @typedef {keyof typeof PATHS} IconName */

/** @param {{name: IconName}} props */
export function Icon({ name }) {
  return html`<svg class="icon" viewBox="0 0 24 24" aria-hidden="true"><path d=${PATHS[name]} /></svg>`;
}
