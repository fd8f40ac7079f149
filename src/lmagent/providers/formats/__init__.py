"""Formats of tool calls in text; `markup` lists them. How to add one: docs/text-tool-calls.md."""
