"""JSDoc: the parameters that a comment declares: `@param {number} [params.limit=5] - how many`."""

from __future__ import annotations

import contextlib
import json
import re
from typing import Any

from lmagent.projects.tools.schema import DESCRIBED
from lmagent.tools.sanitize import one_line

_PARAM = re.compile(
    r"@param\s+\{(?P<type>[^}\n]*)\}\s+(?P<open>\[)?(?P<name>[\w$.]+)(?:\s*=(?P<default>[^\]\n]*))?\]?"
    r"[ \t]*-?[ \t]*(?P<text>.*)"
)
_KINDS = {
    "int": "integer",
    "float": "number",
    "bool": "boolean",
    **{name: name for name in ("string", "number", "integer", "boolean", "object", "array")},
}


def documented(comment: str) -> dict[str, tuple[dict[str, Any], bool]]:
    """Return the schemas of a comment's parameters, and whether each is required; empty without any.

    `params.limit` is the parameter `limit`. Without such names, each name is a parameter.
    """
    found = list(_PARAM.finditer(comment))
    dotted = [match for match in found if "." in match["name"]]
    declared = dict[str, tuple[dict[str, Any], bool]]()
    for match in dotted or found:
        parts = match["name"].split(".")
        if len(parts) > 2 or (not dotted and _kind(match["type"]) == {"type": "object"}):
            continue  # a member of a parameter; or the one object with all parameters
        written = match["type"].strip()
        schema = _kind(written.strip("?="))
        if text := match["text"].strip().removesuffix("*/").strip():
            schema = {**schema, "description": one_line(text, DESCRIBED)}
        with contextlib.suppress(ValueError):
            schema = {**schema, "default": json.loads(match["default"] or "")}
        optional = match["open"] or written.startswith("?") or written.endswith("=")
        declared[parts[-1]] = schema, not optional
    return declared


def _kind(written: str) -> dict[str, Any]:
    """Return the schema of a type; one that we do not know accepts everything."""
    text = written.strip().strip("()").strip()
    options = [part.strip() for part in text.split("|") if part.strip() not in ("null", "undefined")]
    if options and all(re.fullmatch(r"'[^']*'|\"[^\"]*\"", part) for part in options):
        return {"type": "string", "enum": [part[1:-1] for part in options]}
    if len(options) != 1:
        return {}
    text = options[0]
    if items := re.fullmatch(r"(?P<of>.+)\[\]|Array\.?<(?P<in>.+)>", text, re.IGNORECASE):
        return {"type": "array", "items": _kind(items["of"] or items["in"])}
    kind = _KINDS.get(text.lower())
    return {"type": kind} if kind else {}
