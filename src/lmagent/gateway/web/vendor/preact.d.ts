export { default as htm } from "htm";
export * from "preact";
export * from "preact/hooks";
export * from "@preact/signals";
