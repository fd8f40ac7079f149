/** A scope with what is inside it, or plain text. */
export type HighlightNode = string | { scope?: string; children: HighlightNode[] };
declare const hljs: {
  highlight(code: string, options: { language: string; ignoreIllegals?: boolean }): {
    _emitter: { rootNode: { children: HighlightNode[] } };
  };
  getLanguage(name: string): unknown;
};
export default hljs;
