"""Run: one call of a Python tool: `run.py CALL`, a file of JSON.

The answer goes to the private channel, so that nothing that the tool prints is taken for it.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from types import ModuleType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, cast
else:

    def cast(_: str, value: object) -> object:
        """Return the value: importing `typing` would take longer than most calls."""
        return value


def main(path: str) -> None:
    """Run the call of a file."""
    with open(path, encoding="utf-8") as file:
        call: dict[str, Any] = json.load(file)
    channel = int(os.environ.pop("LMAGENT_CHANNEL"))
    write, end = os.write, os._exit
    try:
        answer = _result(_called(call))
    except BaseException as failure:  # noqa: BLE001  also SystemExit: the tool has ended, and this is why
        answer = {"error": _failure(failure, call["file"])}
    data = json.dumps(answer, default=str).encode() + b"\n"
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    while data:
        data = data[write(channel, data) :]
    end(0)  # threads of the tool do not delay the answer


def _called(call: dict[str, Any]) -> Any:
    sys.argv = [call["file"]]
    sys.path[:0] = [os.path.dirname(call["file"]), call["project"], *call["libraries"]]
    sys.modules["lmagent"] = _lmagent()
    module = ModuleType("project_tool")
    module.__file__ = call["file"]
    sys.modules[module.__name__] = module  # dataclasses look their module up
    exec(compile(call["source"], call["file"], "exec"), module.__dict__)
    function: Callable[..., Any] = getattr(module, call["function"])
    arguments: dict[str, Any] = call["arguments"]
    if any(isinstance(value, dict | list) for value in arguments.values()):
        arguments = _typed(function, arguments)
    result = function(**arguments)
    if hasattr(result, "__await__"):
        import asyncio

        async def wait() -> Any:
            return await result

        result = asyncio.run(wait())
    return result


def _lmagent() -> ModuleType:
    """Return a stand-in of lmagent, which is not here: it has the decorator, which changes nothing."""

    def tool(function: Any = None, /, **_: Any) -> Any:
        return function if callable(function) else _unchanged

    module = ModuleType("lmagent")
    module.__dict__["tool"] = tool
    return module


def _unchanged(function: Any) -> Any:
    return function


def _typed(function: Callable[..., Any], arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments with objects made into the dataclasses that the function takes."""
    import typing

    hints = typing.get_type_hints(function)
    return {name: _made(value, hints.get(name)) for name, value in arguments.items()}


def _made(value: Any, hint: Any) -> Any:
    import dataclasses
    import typing

    inner = typing.get_args(hint)
    if isinstance(value, list):
        items = cast("list[Any]", value)
        return [_made(item, inner[0] if inner else None) for item in items]
    if not isinstance(value, dict):
        return value
    members = cast("dict[str, Any]", value)
    for option in (hint, *inner):
        if dataclasses.is_dataclass(option) and isinstance(option, type):
            hints = typing.get_type_hints(option)
            return option(**{name: _made(item, hints.get(name)) for name, item in members.items()})
    return members


def _result(value: Any) -> dict[str, Any]:
    if value is None:
        return {}
    if isinstance(value, str):
        return {"text": value}
    if hasattr(value, "__dataclass_fields__"):
        import dataclasses

        value = dataclasses.asdict(value)
    text = json.dumps(value, default=str, ensure_ascii=False)
    members = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    error = members.get("error")
    if isinstance(error, str) and error:
        return {"error": error if len(members) == 1 else text}
    return {"json": text}


def _failure(failure: BaseException, path: str) -> str:
    if isinstance(failure, SyntaxError):
        return f"SyntaxError: {failure}"
    lines = list[int]()
    trace = failure.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == path:
            lines.append(trace.tb_lineno)
        trace = trace.tb_next
    text = f"{type(failure).__name__}: {failure}" if str(failure) else type(failure).__name__
    return f"{text} (line {lines[-1]})" if lines else text


if __name__ == "__main__":
    main(sys.argv[1])
