"""Answers: the type that a program wants the final answer to have, and the review that makes the model give it."""

from __future__ import annotations

import json
import re
import sys
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from lmagent.core.decoding import decode_json
from lmagent.core.errors import ConfigError
from lmagent.engine.review import Again, End, Review

if TYPE_CHECKING:
    from lmagent.engine.endings import Ending
    from lmagent.engine.session import Session

T = TypeVar("T")

CAUSE = "schema"
"""The cause of a turn's end whose answer does not have the wanted type."""

_FENCE = re.compile(r"```(?:json)?\s*\n(?P<body>.*?)\n\s*```", re.DOTALL)


class Misfit(Exception):
    """A text that is not an answer of the type; the message says why, for the model and the user."""


class AnswerType(Generic[T]):
    """A Struct, dataclass, TypedDict, model of pydantic, or any other type that msgspec can read from JSON."""

    def __init__(self, wanted: type[T]) -> None:
        self._wanted = wanted
        self.name = getattr(wanted, "__name__", str(wanted))
        self._model: Any = wanted if _is_pydantic(wanted) else None
        self.schema = self._model.model_json_schema() if self._model is not None else _schema_of(wanted, self.name)

    @property
    def instruction(self) -> str:
        text = json.dumps(self.schema, ensure_ascii=False, separators=(",", ":"))
        return f"Your final answer must be only JSON that follows this JSON schema:\n{text}"

    def read(self, text: str) -> T:
        """Return the answer in a text. Raise Misfit if it has none of the type."""
        found = json_in(text)
        try:
            if self._model is not None:
                return self._model.model_validate_json(found)
            return decode_json(found, self._wanted)
        except msgspec.ValidationError as misfit:
            raise Misfit(_faults(found, self.schema) or str(misfit)) from None
        except (msgspec.DecodeError, UnicodeError, RecursionError) as broken:
            raise Misfit(f"it is not JSON: {broken}") from None
        except ValueError as misfit:  # of pydantic, and of the type's own checks
            raise Misfit(_problems(misfit)) from None


def _faults(found: str, schema: dict[str, Any]) -> str:
    """Return all faults of a JSON text: msgspec names the first alone, and the model is asked once."""
    from jsonschema import Draft202012Validator  # slow to load, and few answers do not fit

    try:
        errors: Any = Draft202012Validator(schema).iter_errors(json.loads(found))  # type: ignore[reportUnknownMemberType]
        return "; ".join(f"{error.json_path}: {error.message}" for error in list(errors)[:10])
    except (ValueError, RecursionError):
        return ""


def _is_pydantic(wanted: Any) -> bool:
    """Return whether a class is a model of pydantic. Whoever defined one has imported it."""
    pydantic: Any = sys.modules.get("pydantic")
    return pydantic is not None and isinstance(wanted, type) and issubclass(wanted, pydantic.BaseModel)


def _problems(misfit: ValueError) -> str:
    errors: Any = getattr(misfit, "errors", None)
    if errors is None:
        return str(misfit)
    lines = [f"{'.'.join(map(str, each['loc'])) or 'the answer'}: {each['msg']}" for each in errors()]
    return "; ".join(lines[:10])


def _schema_of(wanted: Any, name: str) -> dict[str, Any]:
    """Return the JSON schema of a type, with the type itself at the top: some servers accept no other form."""
    try:
        schema = msgspec.json.schema(wanted)
    except (TypeError, ValueError) as unusable:
        raise ConfigError(
            f"the model cannot be asked for an answer of type {name}: {str(unusable).splitlines()[-1]}",
            fix="give a msgspec.Struct, a dataclass, a TypedDict or a model of pydantic",
        ) from None
    if "$ref" in schema:
        key = schema["$ref"].rpartition("/")[2]
        top = schema["$defs"][key]
        others = {other: value for other, value in schema["$defs"].items() if other != key}
        is_nested = f'"#/$defs/{key}"' in json.dumps([top, others])
        kept = schema["$defs"] if is_nested else others
        schema = {**top, "$defs": kept} if kept else top
    return schema


def json_in(text: str) -> str:
    """Return the JSON in an answer: of its last fenced block, the text itself, or the widest piece with brackets."""
    blocks = _FENCE.findall(text)
    text = (blocks[-1] if blocks else text).strip()
    begins = [at for at in (text.find("{"), text.find("[")) if at >= 0]
    if not begins or min(begins) == 0 or (text[:1] in '"-0123456789tfn' and _is_json(text)):
        return text
    inner = text[min(begins) : max(text.rfind("}"), text.rfind("]")) + 1]
    return inner if _is_json(inner) else text


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


class AnswerReview(Review):
    """Ends a turn whose answer has the wanted type, and asks once for another one if it has not.

    The second request lets the server enforce the schema, if it can. The first cannot: the model could call no tool.

    Attributes:
        wanted: the types of the answers, by session.
    """

    def __init__(self) -> None:
        self.wanted: dict[str, AnswerType[Any]] = {}

    async def at_end(self, session: Session, ending: Ending, answer: str) -> End | Again | None:
        wanted = self.wanted.get(session.state.session)
        if wanted is None:
            return None
        try:
            wanted.read(answer)
        except Misfit as misfit:
            if ending.kind != "done" and "{" not in answer:
                return None  # it asks, is blocked, or announces work
            session.answer_schemas[session.state.turn] = wanted.schema
            text = f"Your answer is not as wanted: {misfit}. Answer again, with nothing but the JSON."
            reason = f"the answer is no {wanted.name}, nor was the one before it: {misfit}"
            return Again("answer", text, 1, End("error", CAUSE, reason, answer, fix="read its text, or ask again"))
        return End("done", answer=answer)
