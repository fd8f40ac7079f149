// @ts-check
// Pictures for a message: pasted, dropped or chosen; sent up at once, shown with a way to take them away.
import { randomId, request, sessionPath } from "../session/api.js";
import { Icon } from "../icons.js";
import { html, useEffect, useRef, useState } from "../lib.js";
import { part, Square, unloaded } from "../parts.js";
import { tried } from "../session/state.js";
import { attachments as labels, chat as words } from "../words/conversation.js";

/** What models take; other files are named, not sent along. */
const IMAGES = /^image\/(png|jpeg|gif|webp)$/;

/** @typedef {{key: string, url: string, name: string, id: string, media_type: string, error: string}} Picture */

/**
 * The pictures of a message that is being written, and the other files that it names.
 * @param {string} session empty for the one of the first screen @param {(text: string) => void} named adds to the message
 */
export function useAttachments(session, named) {
  const [pictures, setPictures] = useState(/** @type {Picture[]} */ ([]));
  const [naming, setNaming] = useState(/** @type {string[]} */ ([]));
  const chooser = useRef(/** @type {HTMLInputElement | null} */ (null));
  const shown = useRef(pictures);
  shown.current = pictures;
  useEffect(() => () => shown.current.forEach(({ url }) => URL.revokeObjectURL(url)), []);

  const change = (/** @type {string} */ key, /** @type {Partial<Picture>} */ fields) => {
    setPictures((all) => all.map((item) => (item.key === key ? { ...item, ...fields } : item)));
  };
  const add = async (/** @type {File} */ file) => {
    const key = randomId();
    const url = URL.createObjectURL(file);
    const made = { key, url, name: file.name || words.picture, id: "", media_type: "", error: "" };
    setPictures((all) => [...all, made]);
    try {
      const { id, media_type } = await (await request("POST", "/api/uploads", { body: file })).json();
      change(key, { id, media_type });
    } catch (error) {
      change(key, { error: /** @type {import("../session/api.js").ApiError} */ (error).words });
    }
  };
  const take = (/** @type {Iterable<File> | null | undefined} */ files) => {
    const all = [...(files ?? [])];
    const images = all.filter((file) => IMAGES.test(file.type));
    images.forEach(add);
    mention(all.filter((file) => !images.includes(file)));
    return all.length > 0;
  };
  /** Other files go into the workspace, and the message names them. */
  const mention = async (/** @type {File[]} */ others) => {
    if (!others.length) return;
    setNaming((names) => [...names, ...others.map((file) => file.name)]);
    const { mentioned, sendForMessage } = await part("./panels/sending.js").catch(() => (unloaded(), {}));
    for (const file of others) {
      const path = await sendForMessage?.(session, file);
      if (path) named(`${mentioned(path)} `);
      setNaming((names) => names.filter((name) => name !== file.name));
    }
  };
  const over = useDrop(take);
  const drop = (/** @type {Picture[]} */ gone) => {
    for (const { url } of gone) URL.revokeObjectURL(url);
    const keys = new Set(gone.map(({ key }) => key));
    setPictures((all) => all.filter(({ key }) => !keys.has(key)));
  };
  /** The pictures of a message that was taken back. */
  const returned = async (/** @type {string} */ session, /** @type {import("../session/wire.js").UserBlock} */ { id, images }) => {
    await tried(async () => {
      for (let number = 0; number < images; number++) {
        const answer = await request("GET", sessionPath(session, `/images/${encodeURIComponent(id)}/${number}`));
        const data = await answer.blob();
        add(new File([data], words.picture, { type: data.type }));
      }
    });
  };
  return {
    pictures,
    naming,
    returned,
    drop,
    ready: pictures.filter((item) => item.id),
    busy: naming.length > 0 || pictures.some((item) => !item.id && !item.error),
    pasted: (/** @type {ClipboardEvent} */ event) => {
      const files = [...(event.clipboardData?.files ?? [])];
      if (files.length && take(files)) event.preventDefault();
    },
    over,
    button: html`<input type="file" multiple hidden ref=${chooser} aria-label=${labels.label}
        onChange=${(/** @type {any} */ event) => (take(event.target.files), (event.target.value = ""))} />
      <${Square} icon="clip" label=${labels.add} onClick=${() => chooser.current?.click()} />`,
  };
}

/**
 * Take files dropped anywhere on the page, unless a part of it takes them itself. Returns whether files are held over it.
 * @param {(files: FileList) => void} take
 */
function useDrop(take) {
  const [over, setOver] = useState(false);
  const latest = useRef(take);
  latest.current = take;
  useEffect(() => {
    const dragged = (/** @type {DragEvent} */ event) => {
      if (event.defaultPrevented || !event.dataTransfer?.types.includes("Files")) return setOver(false);
      event.preventDefault();
      setOver(true);
    };
    const left = (/** @type {DragEvent} */ event) => event.relatedTarget || setOver(false);
    const dropped = (/** @type {DragEvent} */ event) => {
      setOver(false);
      if (event.defaultPrevented || !event.dataTransfer?.files.length) return;
      event.preventDefault();
      latest.current(event.dataTransfer.files);
    };
    addEventListener("dragover", dragged);
    addEventListener("dragleave", left);
    addEventListener("drop", dropped);
    return () => {
      removeEventListener("dragover", dragged);
      removeEventListener("dragleave", left);
      removeEventListener("drop", dropped);
    };
  }, []);
  return over;
}

/** @param {{given: ReturnType<typeof useAttachments>}} props */
export function Attachments({ given }) {
  const { naming, over, pictures } = given;
  return html`${over && html`<p class="drop-here" role="status">${words.dropHere}</p>`}
  ${naming.length > 0 && html`<p class="small quiet" role="status">${labels.uploading(naming)}</p>`}
  ${pictures.length > 0 && html`<ul class="bare pictures">${pictures.map((picture) => html`<li key=${picture.key} class=${picture.error ? "failed" : ""}>
    <img src=${picture.url} alt=${picture.name} />
    <span class="small" role="status">${picture.error || (picture.id ? "" : words.uploading)}</span>
    <button class="button square" aria-label=${words.remove(picture.name)} onClick=${() => given.drop([picture])}><${Icon} name="close" /></button>
  </li>`)}</ul>`}`;
}
