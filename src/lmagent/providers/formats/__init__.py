"""Formats of tool calls in text, each in a file of its own; `registry` lists them."""
