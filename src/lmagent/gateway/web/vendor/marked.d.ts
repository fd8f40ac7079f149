export * from "marked";
