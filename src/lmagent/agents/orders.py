"""Orders: the tasks that a call has for sub-agents, checked before anything starts."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import msgspec
from msgspec import Struct

from lmagent.agents.feature import DelegateArgs
from lmagent.core.decoding import convert
from lmagent.core.errors import ToolError
from lmagent.core.work import Deliverable
from lmagent.policy.paths import inside as inside_workspace

MOST_TASKS = 8
"""Tasks of one manifest."""

_CLOSED = (".git", ".lmagent")


class Order(Struct, frozen=True):
    """The task of one sub-agent."""

    objective: str
    deliverable: Deliverable
    task: str = ""  # its name in the manifest; empty for a call with a single task
    constraints: tuple[str, ...] = ()
    depends_on: tuple[str, ...] = ()
    hint: str = ""  # words to look for in the parent's findings
    agent: str = ""  # the name of the agent that does it; empty for one like its parent


class _Task(Struct, forbid_unknown_fields=True):
    task_id: str | int
    objective: str
    deliverable: dict[str, Any] | str = ""
    constraints: tuple[str, ...] | str = ()
    depends_on: tuple[str | int, ...] | str | int = ()


class _Deliverable(Deliverable, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A deliverable in a manifest; unknown fields are errors."""


def refuse(why: str) -> ToolError:
    return ToolError(f"{why} Nothing was begun.", data={"code": "invalid_arguments"})


def order_of(arguments: DelegateArgs, workspace: Path) -> Order:
    """Read the order of a delegate call. Raises ToolError if it cannot be carried out in this form."""
    path, kind = arguments.deliverable_path, arguments.deliverable_type
    wanted = Deliverable(
        type="file" if path and kind == "report" else kind,
        description=arguments.deliverable_description or arguments.objective,
        path=path,
        format=arguments.deliverable_format,
    )
    if not arguments.objective.strip():
        raise refuse("The objective is empty.")
    return Order(
        objective=arguments.objective.strip(),
        deliverable=checked(wanted, workspace),
        constraints=arguments.constraints,
        hint=arguments.data_hint,
        agent=arguments.agent,
    )


def orders_of(manifest: Any, workspace: Path) -> list[Order]:
    """Return the tasks of a manifest, each after those that it depends on.

    `manifest` is `{"tasks": [...]}`, the list alone, or either as JSON text. Raises ToolError if it is no
    manifest, or its dependencies cannot be followed.
    """
    entries = _entries(manifest)
    if not 1 <= len(entries) <= MOST_TASKS:
        raise refuse(f"A manifest has 1 to {MOST_TASKS} tasks, this one {len(entries)}: split it up.")
    orders: dict[str, Order] = {}
    for number, entry in enumerate(entries, 1):
        order = _order(entry, number, workspace)
        if order.task in orders:
            raise refuse(f"Two tasks have the task_id {order.task!r}.")
        orders[order.task] = order
    return _in_order(orders)


def _entries(manifest: Any) -> Sequence[Any]:
    manifest = _decoded(manifest)
    if isinstance(manifest, Mapping):
        manifest = _decoded(cast("Mapping[str, Any]", manifest).get("tasks"))
    if not isinstance(manifest, list):
        raise refuse('The manifest must be {"tasks": [...]} or a list of tasks.')
    return cast("list[Any]", manifest)


def _decoded(value: Any) -> Any:
    """Parse a text as JSON; return any other value unchanged."""
    if not isinstance(value, str):
        return value
    try:
        return msgspec.json.decode(value.encode("utf-8", "surrogatepass"))
    except (msgspec.DecodeError, UnicodeError, RecursionError) as fault:
        raise refuse(f"The manifest is not valid JSON: {fault}.") from None


def _given(entry: Any) -> Any:
    """Drop the null fields of an entry: models write null for "left out"."""
    if not isinstance(entry, dict):
        return entry
    return {name: value for name, value in cast("dict[str, Any]", entry).items() if value is not None}


def _order(entry: Any, number: int, workspace: Path) -> Order:
    try:
        task = convert(_given(entry), _Task)
        wanted = task.deliverable
        if isinstance(wanted, dict):
            wanted = _given(wanted)
            if isinstance(paths := wanted.get("paths"), str):
                wanted["paths"] = [paths]
            several = "files" if wanted.get("paths") else "report"
            described = {"type": "file" if wanted.get("path") else several, "description": task.objective}
            wanted = convert({**described, **wanted}, _Deliverable)
        else:
            wanted = Deliverable("report", wanted or task.objective)
    except msgspec.ValidationError as fault:
        raise refuse(f"Task {number} of the manifest is not usable: {fault}.") from None
    name, needed = str(task.task_id).strip(), task.depends_on
    if not name or not task.objective.strip():
        raise refuse(f"Task {number} of the manifest needs a task_id and an objective.")
    return Order(
        objective=task.objective.strip(),
        deliverable=checked(wanted, workspace),
        task=name,
        constraints=(task.constraints,) if isinstance(task.constraints, str) else task.constraints,
        depends_on=tuple(str(one).strip() for one in (needed if isinstance(needed, tuple) else (needed,)) if one != ""),
    )


def _in_order(orders: dict[str, Order]) -> list[Order]:
    from graphlib import CycleError, TopologicalSorter  # only a manifest pays for it

    for order in orders.values():
        for name in order.depends_on:
            if name not in orders:
                raise refuse(f"Task {order.task!r} depends on {name!r}, which is no task of the manifest.")
    try:
        names = tuple(TopologicalSorter({name: order.depends_on for name, order in orders.items()}).static_order())
    except CycleError as cycle:
        raise refuse(f"The dependencies go in a circle: {' → '.join(map(str, cycle.args[1]))}.") from None
    return [orders[name] for name in names]


def checked(wanted: Deliverable, workspace: Path) -> Deliverable:
    """Return the deliverable with its paths relative to the workspace.

    Raises ToolError if a path leads out of the workspace or into the program's own folders, or the schema is invalid.
    """
    paths = tuple(_path(workspace, path) for path in wanted.paths)
    path = _path(workspace, wanted.path) if wanted.path else ""
    if wanted.type == "file" and not path:
        if len(paths) != 1:
            raise refuse("A deliverable of type file needs its path (deliverable_path).")
        path, paths = paths[0], ()
    if wanted.schema is not None:
        _check_schema(wanted.schema)
    return msgspec.structs.replace(wanted, path=path, paths=paths)


def named(wanted: Deliverable) -> tuple[str, ...]:
    """Return the paths that the deliverable names."""
    return ((wanted.path,) if wanted.path else ()) + wanted.paths


def _path(workspace: Path, path: str) -> str:
    found = inside(workspace, path)
    if found is None:
        raise refuse(f"The deliverable's path {path!r} is not a path of a file in the workspace.")
    return found


def inside(workspace: Path, path: str) -> str | None:
    """Return the path relative to the workspace; None if tools may not write a file there."""
    root = str(workspace)
    named = inside_workspace(path, root) if path.startswith("/") else path
    if named is None or "\0" in path:
        return None
    try:
        relative = os.path.relpath(os.path.normpath(os.path.join(root, named)), root)
        real = os.path.relpath(os.path.realpath(os.path.join(root, named)), os.path.realpath(root))
    except (OSError, ValueError):
        return None
    for place in (relative, real):
        parts = place.replace(os.sep, "/").split("/")
        if parts[0] in (".", "..") or any(part in _CLOSED for part in parts):
            return None
    return relative.replace(os.sep, "/")


def _check_schema(schema: dict[str, Any]) -> None:
    """Refuse an invalid schema, and one that refers to another document: nothing is fetched for it."""
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import SchemaError

    if _points_out(schema):
        raise refuse("The schema of the deliverable refers to another document; write it out.")
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as fault:
        raise refuse(f"The schema of the deliverable is no JSON schema: {fault.message}.") from None


def _points_out(node: Any) -> bool:
    if isinstance(node, dict):
        known = cast("dict[str, Any]", node)
        target = known.get("$ref", known.get("$dynamicRef", "#"))
        return not str(target).startswith("#") or any(map(_points_out, known.values()))
    return isinstance(node, list) and any(map(_points_out, cast("list[Any]", node)))
