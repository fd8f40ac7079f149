"""Functions: a Python function as a tool of the model. The type hints are its schema, the docstring describes it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from functools import update_wrapper
from typing import TYPE_CHECKING, Annotated, Any, Generic, ParamSpec, TypeVar, get_args, get_origin, get_type_hints

import msgspec
from msgspec import NODEFAULT, Meta

from lmagent.core.docstrings import documented
from lmagent.core.errors import ConfigError, ToolError
from lmagent.core.tool import Effect, Tool, ToolContext, ToolOutput

if TYPE_CHECKING:
    from typing import overload

P = ParamSpec("P")
R = TypeVar("R")

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")  # the names that servers accept, as OpenAI's API does

_FIX = "use text, numbers, bool, lists, dicts, Literal, Enum, a dataclass, a TypedDict or a msgspec.Struct"


class FunctionTool(Generic[P, R]):
    """A function that the model may call. Programs call it as before.

    Attributes:
        tool: the tool in the form that every part of lmagent uses.
        asks: the user is asked before each call.
    """

    def __init__(self, function: Callable[P, R], name: str, description: str, effect: Effect, *, asks: bool) -> None:
        update_wrapper(self, function)
        self._function = function
        self.asks = asks
        self.tool = _tool_of(function, name, description, effect)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<tool {self.tool.name}>"


if TYPE_CHECKING:

    @overload
    def tool(function: Callable[P, R], /) -> FunctionTool[P, R]: ...
    @overload
    def tool(
        *, name: str = "", description: str = "", effect: Effect = "exec", ask: bool = False
    ) -> Callable[[Callable[P, R]], FunctionTool[P, R]]: ...


def tool(
    function: Any = None, /, *, name: str = "", description: str = "", effect: Effect = "exec", ask: bool = False
) -> Any:
    """Make a function a tool of the model: `@tool`, `@tool(effect="read")` or `tool(function)`.

    The function may be async. One that is not runs in a thread. Its errors reach the model; `ToolError` is for
    failures with advice for the model.

    Args:
        function: its arguments need type hints; an argument of type `ToolContext` gets the context of the call.
        name: the name for the model; the function's own by default.
        description: the text for the model; the docstring's first part by default.
        effect: `read` only looks: such calls run side by side, and are repeated after a crash. `write`, `exec` and
            `net` change something: one at a time, never repeated.
        ask: ask the user before each call, in every permission mode.

    Raises ConfigError: the function cannot be described to a model.
    """

    def made(function: Callable[..., Any]) -> FunctionTool[..., Any]:
        return FunctionTool(function, name, description, effect, asks=ask)

    return made if function is None else made(function)


def as_tool(given: Any) -> FunctionTool[..., Any] | Tool:
    """Return a member of `Agent(tools=…)` as a tool: a plain function becomes one as by `@tool`."""
    if isinstance(given, FunctionTool | Tool):
        return given  # pyright: ignore[reportUnknownVariableType]
    if not callable(given) or isinstance(given, type):
        raise ConfigError(f"tools holds {given!r:.80}, which is no function", fix="give functions, or tools of @tool")
    return tool(given)


# --- from a function to a tool ----------------------------------------------------------------------------------------


def _tool_of(function: Callable[..., Any], name: str, description: str, effect: Effect) -> Tool:
    name = name or str(getattr(function, "__name__", ""))
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"{name!r} cannot be the name of a tool", fix='name it with letters, digits, _ and -: @tool(name="…")'
        )
    if effect not in get_args(Effect):
        raise ConfigError(f"effect of {name} must be {', '.join(get_args(Effect))}, not {effect!r}")
    text, described = documented(inspect.getdoc(function) or "")
    if not (description or text):
        raise ConfigError(
            f"the tool {name} has no description, and the model would not know when to call it",
            fix="write a docstring, or @tool(description=…)",
        )
    arguments, context = _arguments(function, name, described)
    return Tool(name, description or text, arguments, effect, _runner(function, name, context))


def _arguments(function: Callable[..., Any], name: str, described: dict[str, str]) -> tuple[type[msgspec.Struct], str]:
    """Return the function's arguments as a Struct, and the name of the argument that gets the context."""
    try:
        hints = get_type_hints(function, include_extras=True)
    except Exception as unresolved:
        raise ConfigError(f"the type hints of the tool {name} cannot be read: {unresolved}", fix=_FIX) from unresolved
    fields, context = list[Any](), ""
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise ConfigError(
                f"the argument {parameter.name} of the tool {name} has no name for the model",
                fix="tools take named arguments: no *args, no **kwargs, nothing before a /",
            )
        hint = hints.get(parameter.name)
        if hint is ToolContext:
            context = parameter.name
            continue
        if hint is None:
            raise ConfigError(
                f"the argument {parameter.name} of the tool {name} has no type hint",
                fix="write one, such as str; of a method give the bound one: tools=[shop.price]",
            )
        fields.append(_field(parameter, hint, described.get(parameter.name, "")))
    try:
        struct = msgspec.defstruct(name.replace("-", "_"), fields, kw_only=True)
        Tool(name, "", struct, "read", _runner(function, name, "")).spec  # noqa: B018 - it fails now, or at the first request
    except (TypeError, ValueError, RecursionError) as unusable:
        why = str(unusable).splitlines()[-1] if str(unusable) else "a type contains itself"
        raise ConfigError(f"the arguments of the tool {name} cannot be described to a model: {why}", fix=_FIX) from None
    return struct, context


def _field(parameter: inspect.Parameter, hint: Any, description: str) -> tuple[Any, ...]:
    if get_origin(hint) is Annotated:  # Annotated[str, "a text"] describes the argument too
        plain, *notes = get_args(hint)
        description = next((note for note in notes if isinstance(note, str)), description)
        for note in notes:
            plain = plain if isinstance(note, str) else Annotated[plain, note]
        hint = plain
    if description:
        hint = Annotated[hint, Meta(description=description)]
    if parameter.default is parameter.empty:
        return parameter.name, hint, NODEFAULT
    return parameter.name, hint, msgspec.field(default_factory=lambda: parameter.default)


# --- running ----------------------------------------------------------------------------------------------------------


def _runner(function: Callable[..., Any], name: str, context_name: str) -> Callable[..., Any]:
    async def run(arguments: msgspec.Struct, context: ToolContext) -> ToolOutput:
        given = {field: getattr(arguments, field) for field in arguments.__struct_fields__}
        if context_name:
            given[context_name] = context
        try:
            return _output(await _call(function, given))
        except ToolError:
            raise
        except (Exception, SystemExit) as failure:
            import logging

            logging.getLogger("lmagent").info("the tool %s failed", name, exc_info=failure)
            raise ToolError(f"{name} failed: {type(failure).__name__}: {failure}", data={"code": "failed"}) from failure

    return run


async def _call(function: Callable[..., Any], given: dict[str, Any]) -> Any:
    import anyio.to_thread

    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None)):  # noqa: B004
        return await function(**given)
    # An interrupt does not wait for the function: its thread ends with it, and its result is dropped.
    result = await anyio.to_thread.run_sync(lambda: function(**given), abandon_on_cancel=True)
    return await result if inspect.isawaitable(result) else result


def _output(result: Any) -> ToolOutput:
    if isinstance(result, ToolOutput):
        return result
    if isinstance(result, str):
        return ToolOutput(result)
    if result is None:
        return ToolOutput("")
    dump: Any = getattr(result, "model_dump_json", None)  # a model of pydantic
    if dump is not None:
        return ToolOutput(dump())
    return ToolOutput(msgspec.json.encode(result, enc_hook=str).decode())
