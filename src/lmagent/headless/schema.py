"""--output-schema: the final answer as JSON that follows a schema, with one round of repair."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError
from msgspec import Struct
from msgspec.structs import replace

from lmagent.core.commands import Submit
from lmagent.core.errors import ConfigError
from lmagent.core.events import TurnFinished
from lmagent.core.messages import user
from lmagent.engine.lane import run_until_idle
from lmagent.engine.session import Session

_FENCE = re.compile(r"```(?:json)?\s*\n(?P<body>.*?)\n\s*```", re.DOTALL)


class AnswerCheck(Struct, frozen=True):
    schema: dict[str, Any]

    @classmethod
    def load(cls, path: Path) -> AnswerCheck:
        """Load the check from a schema file. Raises ConfigError if the file cannot be read, or is no JSON schema."""
        try:
            schema = json.loads(path.read_text(encoding="utf-8"))
            Draft202012Validator.check_schema(schema)
        except (OSError, ValueError, SchemaError) as bad:
            why = bad.message if isinstance(bad, SchemaError) else str(bad)
            fix = "give a file with a JSON schema of draft 2020-12"
            raise ConfigError(f"{path} is no valid JSON schema: {why}", fix=fix) from None
        return cls(schema)

    @property
    def instruction(self) -> str:
        return f"Your final answer must be only JSON that follows this JSON schema:\n{json.dumps(self.schema)}"

    def faults(self, answer: str) -> list[str]:
        """List the faults of an answer; empty if it follows the schema."""
        try:
            value = json.loads(json_of(answer))
        except ValueError as bad:
            return [f"it is not JSON: {bad}"]
        found = Draft202012Validator(self.schema).iter_errors(value)  # type: ignore[reportUnknownMemberType]
        return [f"{error.json_path}: {error.message}" for error in found][:10]

    def answer(self, finished: TurnFinished) -> str:
        return json.dumps(json.loads(json_of(finished.answer)), ensure_ascii=False)

    async def settle(self, session: Session, finished: TurnFinished) -> TurnFinished | None:
        """Judge the answer; ask once for a better one; an answer that still does not fit makes the run an error."""
        faults = self.faults(finished.answer)
        if not faults:
            return finished
        listed = "\n".join(f"- {fault}" for fault in faults)
        request = f"Your answer does not follow the schema:\n{listed}\nAnswer again, with nothing but the JSON."
        await session.send(Submit(message=user(request), by="output-schema"))
        second = await run_until_idle(session)
        if second is None or second.outcome != "done":
            return second
        faults = self.faults(second.answer)
        if not faults:
            return second
        reason = f"the answer does not follow the schema, nor did the one before it: {'; '.join(faults)}"
        return replace(second, outcome="error", cause="schema", reason=reason)


def json_of(answer: str) -> str:
    """Return the JSON in an answer: the only fenced block, or the text itself."""
    blocks = _FENCE.findall(answer)
    return blocks[-1] if blocks else answer.strip()
