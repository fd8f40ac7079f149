"""Plans: from text of a model or a user to a plan that can be followed, and back to text."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from typing import Any, cast

from msgspec import Struct
from msgspec.structs import asdict

from lmagent.core.decoding import json_fault
from lmagent.core.plurals import plural
from lmagent.core.work import Plan, PlanStep, Task
from lmagent.planning.tree import faults

MOST_STEPS = 30
LONGEST = 2000  # characters of each text of a step
LONGEST_PLAN = 24_000  # characters of the whole plan as text

LONGEST_ID = 64
SHOWN_FAULTS = 8

_TEXT = {"type": "string"}
_LIST = {"type": "array", "items": _TEXT}


def _object(**properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


_STEP = _object(id=_TEXT, description=_TEXT, verification=_TEXT, risk=_TEXT, dependencies=_LIST)
_STEPS = {"type": "array", "minItems": 1, "maxItems": MOST_STEPS, "items": _STEP}
# JSON schema of a plan, for servers that can enforce one.
SCHEMA = _object(title=_TEXT, goal=_TEXT, risk_areas=_LIST, steps=_STEPS)

_ITEM = re.compile(r"^(?:\*\*)?\d{1,2}[.)]\s+(?P<text>\S.*)$")  # a line of a numbered list, not indented

_FENCE = re.compile(r"```[a-zA-Z]*\s*\n(.*?)```", re.DOTALL)


class Unusable(Struct, frozen=True):
    """The reason why a text is not a usable plan."""

    faults: tuple[str, ...]
    json: bool = True  # whether it contains a JSON object at all

    @property
    def words(self) -> str:
        return "; ".join(self.faults)


def read_plan(text: str, taken: Collection[str] = ()) -> Plan | Unusable:
    """Read the plan in a text: bare JSON or in a fence, with or without text (`PLAN_APPROVED`) around it.

    `taken` are ids of other tasks of the session, which no step may have.
    """
    objects = list(_objects(text))
    plans = [value for value in objects if "steps" in value or isinstance(value.get("plan"), dict)]
    if not plans:
        if objects:
            return Unusable(("the JSON has no steps",))
        return Unusable((_why_not_json(text),), json="{" in text)
    value = plans[-1]
    inner = value.get("plan")
    if "steps" not in value and isinstance(inner, dict):
        value = cast("dict[str, Any]", inner)
    return _plan(value, taken)


def listed_plan(text: str, goal: str, taken: Collection[str] = ()) -> Plan | Unusable:
    """Return the plan in a numbered list, as small models write it; indented lines belong to the item above them."""
    steps: list[str] = []
    for line in text.splitlines():
        if found := _ITEM.match(line):
            steps.append(found["text"])
        elif steps and line[:1].isspace() and line.strip():
            steps[-1] += f" {line.strip()}"
    if len(steps) < 2 or any(step.rstrip("* ").endswith("?") for step in steps):  # one item, or questions
        return Unusable(("it is no numbered list of steps",), json=False)
    described = [{"description": step.replace("**", "")} for step in steps]
    return _plan({"goal": goal[:LONGEST], "steps": described}, taken)


def _objects(text: str) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects in the text; an outer object comes before the objects inside it."""
    fenced: list[str] = _FENCE.findall(text)
    decoder = json.JSONDecoder()
    for piece in (*fenced, text) if fenced else (text,):
        at, tries = piece.find("{"), 0
        while at >= 0 and tries < 50:
            try:
                value, end = decoder.raw_decode(piece, at)
                yield cast("dict[str, Any]", value)
            except (ValueError, RecursionError):
                end, tries = at + 1, tries + 1
            at = piece.find("{", end)


def _why_not_json(text: str) -> str:
    at = text.find("{")
    if at < 0:
        return "there is no JSON object in it"
    error = json_fault(text[at:])
    return "it is not valid JSON" + (f": {error.msg} at line {error.lineno} column {error.colno}" if error else "")


def _plan(value: dict[str, Any], taken: Collection[str]) -> Plan | Unusable:
    listed: Any = value.get("steps")
    if not isinstance(listed, list) or not listed:
        return Unusable(("it has no steps",))
    steps = cast("list[Any]", listed)
    if len(steps) > MOST_STEPS:
        return Unusable((f"it has {len(steps)} steps, at most {MOST_STEPS} are allowed: take small ones together",))
    found: list[str] = []
    made = [_step(step, position, found) for position, step in enumerate(steps, 1)]
    ids = [step.id for step in made]
    found += [f"two steps have the id {id}" for id in dict.fromkeys(ids) if ids.count(id) > 1]
    found += [f"the id {id} belongs to another task of this session" for id in ids if id in taken]
    found += faults({step.id: step.dependencies for step in made})
    title, goal, risks = _text(value.get("title")), _text(value.get("goal")), _texts(value.get("risk_areas"))
    if not goal and not title:
        found.append("it has no goal")
    plan = Plan(title or goal, goal or title, tuple(made), risks)
    if (size := len(plan_text(plan))) > LONGEST_PLAN:
        found.append(f"it has {size:,} characters, at most {LONGEST_PLAN:,} are allowed")
    more = (f"and {plural(len(found) - SHOWN_FAULTS, 'more fault')}",) if len(found) > SHOWN_FAULTS else ()
    return Unusable((*found[:SHOWN_FAULTS], *more)) if found else plan


def _step(value: Any, position: int, found: list[str]) -> PlanStep:
    if not isinstance(value, dict):
        found.append(f"step {position} is no object")
        return PlanStep(str(position), "")
    step = cast("dict[str, Any]", value)
    id = _text(step.get("id")) or str(position)
    if len(id) > LONGEST_ID or any(char.isspace() or char == "," for char in id):
        found.append(f"the id {id[:80]!r} has a blank or a comma, or more than {LONGEST_ID} characters")
    texts = {name: _text(step.get(name)) for name in ("description", "verification", "risk")}
    if not texts["description"]:
        found.append(f"step {id} has no description")
    found += [
        f"{name} of step {id} is longer than {LONGEST:,} characters" for name in texts if len(texts[name]) > LONGEST
    ]
    return PlanStep(id, dependencies=tuple(dict.fromkeys(_texts(step.get("dependencies")))), **texts)


def _text(value: Any) -> str:
    """Return a text, or a number as text."""
    return " ".join(str(value).split()) if isinstance(value, str | int | float) and not isinstance(value, bool) else ""


def _texts(value: Any) -> tuple[str, ...]:
    """Return the texts of a list, or a single text as a list; models write both."""
    listed = cast("list[Any]", value) if isinstance(value, list) else [value]
    return tuple(filter(None, map(_text, listed)))


def steps_of(plan: Plan) -> tuple[Task, ...]:
    return tuple(
        Task(one.id, "step", one.description, verification=one.verification, depends_on=one.dependencies, risk=one.risk)
        for one in plan.steps
    )


def plan_text(plan: Plan) -> str:
    """Format the whole plan for the user, as plain text: approval must not hide any of it."""
    lines = [f"Plan: {plan.title}"]
    if plan.goal != plan.title:
        lines.append(f"Goal: {plan.goal}")
    if plan.risk_areas:
        lines.append(f"Risks: {'; '.join(plan.risk_areas)}")
    lines.append("")
    for step in plan.steps:
        after = f" (after {', '.join(step.dependencies)})" if step.dependencies else ""
        lines.append(f"- {step.id}: {step.description}{after}")
        if step.verification:
            lines.append(f"    - check: {step.verification}")
        if step.risk:
            lines.append(f"    - risk: {step.risk}")
    return "\n".join(lines)


def plan_json(plan: Plan) -> str:
    """Return the plan as JSON with every field of the schema."""
    fields = {
        "title": plan.title,
        "goal": plan.goal,
        "risk_areas": plan.risk_areas,
        "steps": list(map(asdict, plan.steps)),
    }
    return json.dumps(fields, indent=2, ensure_ascii=False) + "\n"
