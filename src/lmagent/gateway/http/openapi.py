"""OpenAPI: the table of routes as an OpenAPI 3.1.0 document (4.8.9 to 4.8.24), with the schemas of the Structs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import msgspec
from starlette.responses import Response

from lmagent import __version__
from lmagent.core.ids import SESSION_ID
from lmagent.gateway.http.access import COOKIE
from lmagent.gateway.http.errors import Failure
from lmagent.gateway.http.route import Call, Route, Routes

ROUTES = Routes()

_REFERENCE = "#/components/schemas/{name}"
_PART = re.compile(r"\{(\w+)(?::path)?\}")


def describe(routes: Sequence[Route]) -> dict[str, Any]:
    kinds = [kind for route in routes for kind in (route.body, route.answer) if kind is not None]
    made, components = msgspec.json.schema_components([Failure, *kinds], ref_template=_REFERENCE)
    schemas = iter(made[1:])  # all at once, because two Structs with the same name get longer names
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        body, answer = (None if kind is None else next(schemas) for kind in (route.body, route.answer))
        operation = _operation(route, body, answer, made[0])
        paths.setdefault(_PART.sub(r"{\1}", route.path), {})[route.method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {"title": "lmagent", "version": __version__, "description": "A local agent, over HTTP."},
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "page": {"type": "apiKey", "in": "cookie", "name": COOKIE},
            },
        },
    }


def _operation(route: Route, body: Any, answer: Any, failure: Any) -> dict[str, Any]:
    told: dict[str, Any] = {
        "summary": route.summary,
        "operationId": _id(route),
        "parameters": [*_in_path(route), *_in_query(route)],
        "responses": {
            str(route.status): _success(route, answer),
            "default": {"description": "Refused", "content": {"application/json": {"schema": failure}}},
        },
        "security": [] if route.is_open else [{"token": []}, {"page": []}],
    }
    if route.raw and body is None:
        told["requestBody"] = {"required": True, "content": {"application/octet-stream": {}}}
    elif body is not None:
        told["requestBody"] = {"required": True, "content": {"application/json": {"schema": body}}}
    return told


def _id(route: Route) -> str:
    """Return a method name for generated clients."""
    words = re.findall(r"\w+", f"{route.method.lower()} {route.path.replace(':path', '')}")
    return "_".join(words)


def _in_path(route: Route) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for name in _PART.findall(route.path):
        schema: dict[str, Any] = {"type": "string", "minLength": 1}
        if name == "session":
            schema = {"type": "string", "pattern": f"^{SESSION_ID.pattern}$"}
        found.append({"name": name, "in": "path", "required": True, "schema": schema})
    return found


def _in_query(route: Route) -> list[dict[str, Any]]:
    if route.query is None:
        return []
    _, components = msgspec.json.schema_components([route.query], ref_template=_REFERENCE)
    schema = components[route.query.__name__]
    required = schema.get("required", ())
    return [
        {"name": name, "in": "query", "required": name in required, "schema": kind}
        for name, kind in schema["properties"].items()
    ]


def _success(route: Route, answer: Any) -> dict[str, Any]:
    if answer is not None:
        return {"description": "Done", "content": {"application/json": {"schema": answer}}}
    if route.media:
        return {"description": "Done", "content": {media: {} for media in route.media.split(", ")}}
    return {"description": "Done"}


@lru_cache(maxsize=1)
def _whole() -> bytes:
    from lmagent.gateway.http.app import TABLE  # a cycle: the table contains this route

    return msgspec.json.encode(describe(TABLE))


@ROUTES.get("/openapi.json", "This description", answer=dict[str, Any], is_open=True, place="gateway")
async def _openapi(call: Call) -> Any:
    return Response(_whole(), media_type="application/json")
