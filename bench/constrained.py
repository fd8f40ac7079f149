"""Constrained calls on the real llama.cpp engine, with a tiny model of random weights: how many replies are valid.

    python bench/constrained.py [--quick]

A model that knows nothing of tools is the hardest case: whatever is valid is so because the schema made it so. Also the
pre-warm: how much of the first prompt the engine still reads after it. Needs the package `xllamacpp`.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
import tempfile
from contextlib import suppress
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import anyio
import jsonschema

from lmagent.app.options import HostOptions
from lmagent.app.wiring import open_host
from lmagent.core import events as ev
from lmagent.core.commands import Submit
from lmagent.core.messages import user
from lmagent.core.model import ModelRequest, ToolSpec
from lmagent.engine.lane import run_until_idle
from lmagent.providers.constrain import schema_for
from lmagent.providers.encode import BodyEncoder

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from testkit.engine import EngineServer
from testkit.gguf import build_tiny_gguf

WORD = {"type": "string", "maxLength": 20}
TOOLS = (
    ToolSpec("read", "Read a file.", {"type": "object", "properties": {"path": WORD}, "required": ["path"]}),
    ToolSpec("ls", "List a folder.", {"type": "object", "properties": {"path": WORD}, "required": []}),
)
LEFT = 0.02
"""Share of the first prompt that may be left to read after a pre-warm: the task itself, and the last token."""


def valid_replies(engine: EngineServer, count: int) -> int:
    """How many of so many replies follow the schema; one that the limit cut off does not."""
    validator = jsonschema.Draft202012Validator(schema_for(TOOLS, think=False))
    valid = 0
    for number in range(count):
        request = ModelRequest("tiny", "You work.", TOOLS, (user(f"Do step {number}."),), 1.0, 1000, constrain=True)
        connection = HTTPConnection(engine.url.removeprefix("http://"))
        body = json.loads(BodyEncoder().encode(request))
        connection.request("POST", "/v1/chat/completions", json.dumps({**body, "stream": False, "seed": number}))
        choice = json.loads(connection.getresponse().read())["choices"][0]
        connection.close()
        with suppress(ValueError):  # what is no JSON is not valid
            valid += validator.is_valid(json.loads(choice["message"]["content"]))
    return valid


async def first_prompt(engine: EngineServer, workspace: Path, *, warm: bool) -> tuple[int, int]:
    """Tokens of the first prompt of a session, and how many of them the engine had to read."""
    flags = {"llm_url": engine.base_url, "llm_max_tokens": 8}
    host = await open_host(HostOptions(workspace, flags), say=lambda _: None)
    if warm:
        await host.prewarm()
    session = await host.new_session()
    await session.send(Submit(message=user("Say something.")))
    await run_until_idle(session)
    step = next(event for event in host.store.read(session.state.session) if isinstance(event, ev.StepFinished))
    await host.aclose()
    return step.usage.prompt_tokens, step.usage.prompt_tokens - step.usage.cached_tokens


def main() -> int:
    """Print the figures as JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    count = 10 if parser.parse_args().quick else 40
    if importlib.util.find_spec("xllamacpp") is None:
        print(json.dumps({"ok": True, "skipped": "xllamacpp is not installed"}))
        return 0
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        model = build_tiny_gguf(Path(folder) / "tiny.gguf")
        with EngineServer(model, context=16_384) as engine:
            figures |= {"replies": count, "valid": valid_replies(engine, count)}
        for name, warm in (("cold", False), ("prewarmed", True)):
            workspace = Path(folder) / name
            workspace.mkdir()
            with EngineServer(model, context=16_384) as engine:
                prompt, read = anyio.run(lambda: first_prompt(engine, workspace, warm=warm))  # noqa: B023  # run at once
            figures |= {"prompt_tokens": prompt, f"{name}_read_tokens": read}
    left = figures["prewarmed_read_tokens"] / figures["prompt_tokens"]
    figures |= {"prewarmed_left": round(left, 4), "ok": figures["valid"] == count and left <= LEFT}
    print(json.dumps(figures))
    return 0 if figures["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
