"""Functions of a program as tools of the model."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pytest
from msgspec import Meta

from lmagent import ConfigError, ToolContext, ToolError, ToolStarted, tool
from lmagent.core import events as ev
from lmagent.testing import call, calls, say
from lmagent.testing.script import tool as scripted


@tool
def price(item: str, currency: Literal["EUR", "USD"] = "EUR") -> str:
    """Return the price of an item.

    The shop's own prices.

    Args:
        item: the name, as in
            the catalogue.
        currency (str): of the price.

    Returns:
        a text
    """
    return f"{item}: 5 {currency}"


@dataclass
class Order:
    item: str
    count: int = 1


def test_a_function_is_described_by_its_types_and_its_docstring():
    spec = price.tool.spec
    assert (spec.name, spec.description) == ("price", "Return the price of an item.\nThe shop's own prices.")
    assert spec.parameters == {
        "type": "object",
        "properties": {
            "item": {"type": "string", "description": "the name, as in the catalogue."},
            "currency": {"enum": ["EUR", "USD"], "description": "of the price."},
        },
        "required": ["item"],
    }


def test_a_function_can_still_be_called_by_the_program():
    assert price("lamp", currency="USD") == "lamp: 5 USD"


def test_other_ways_to_describe_an_argument_work_too():
    @tool(name="find-it", description="Find it.", effect="read")
    def find(a: Annotated[str, "the text"], b: Annotated[int, Meta(ge=1)] = 1, c: str = "") -> None:
        """Not for the model.

        :param c: one more
        """

    spec = find.tool.spec
    assert (spec.name, spec.description, find.tool.effect) == ("find-it", "Find it.", "read")
    assert spec.parameters["properties"] == {
        "a": {"type": "string", "description": "the text"},
        "b": {"type": "integer", "minimum": 1},
        "c": {"type": "string", "description": "one more"},
    }


def test_the_model_calls_a_function_and_gets_its_result(agent_with, last_result):
    agent = agent_with([call("price", item="lamp"), say("5 EUR")], tools=[price])
    assert agent.run_sync("How much?").status == "done"
    assert last_result(agent_with.server) == "lamp: 5 EUR"
    block = [spec["function"]["name"] for spec in agent_with.server.chats[0].fields["tools"]]
    assert "price" in block


def test_results_that_are_no_text_are_json(agent_with, last_result):
    def orders(first: Order) -> list[Order]:
        """List the orders."""
        assert isinstance(first, Order)
        return [first, Order("b", 2)]

    agent_with([call("orders", first={"item": "a", "count": 1}), say("two")], tools=[orders]).run_sync("Which?")
    assert last_result(agent_with.server) == '[{"item":"a","count":1},{"item":"b","count":2}]'


def test_an_async_function_runs_in_the_programs_event_loop_and_another_in_a_thread(agent_with):
    seen = dict[str, object]()

    async def here() -> str:
        """Run in the loop."""
        seen["loop"] = asyncio.get_running_loop()
        return "ok"

    def aside() -> str:
        """Run in a thread."""
        seen["thread"] = threading.current_thread()
        return "ok"

    agent = agent_with([calls(scripted("here"), scripted("aside")), say("done")], tools=[here, aside])

    async def main() -> None:
        await agent.run("Go")
        assert seen["loop"] is asyncio.get_running_loop()

    asyncio.run(main())
    assert seen["thread"] is not threading.current_thread()


def test_functions_that_only_read_run_side_by_side(agent_with):
    both = threading.Barrier(2, timeout=20)

    @tool(effect="read")
    def meet(who: str) -> str:
        """Wait for the other."""
        both.wait()
        return who

    agent = agent_with([calls(scripted("meet", who="a"), scripted("meet", who="b")), say("met")], tools=[meet])
    assert agent.run_sync("Meet").status == "done"


def test_an_error_of_a_function_reaches_the_model_and_the_turn_continues(agent_with, last_result):
    def broken(x: int) -> int:
        """Divide."""
        return 1 // x

    agent = agent_with([call("broken", x=0), say("It cannot be divided.")], tools=[broken])
    assert agent.run_sync("Divide").text == "It cannot be divided."
    assert last_result(agent_with.server) == "broken failed: ZeroDivisionError: integer division or modulo by zero"


def test_a_function_that_ends_the_program_or_advises_the_model_is_an_error_of_a_call(agent_with):
    def leave() -> None:
        """Leave."""
        raise SystemExit(3)

    def advise() -> None:
        """Advise."""
        raise ToolError("There is no such item. Ask for the list first.")

    agent = agent_with([call("leave"), call("advise"), say("I see.")], tools=[leave, advise])
    assert agent.run_sync("Go").status == "done"
    results = [m["content"] for m in agent_with.server.chats[-1].messages if m["role"] == "tool"]
    assert results == ["leave failed: SystemExit: 3", "There is no such item. Ask for the list first."]


def test_arguments_that_do_not_fit_never_reach_the_function(agent_with, last_result):
    agent = agent_with([call("price", item="lamp", currency="YEN"), say("no")], tools=[price])
    agent.run_sync("How much?")
    assert "The arguments do not fit price" in last_result(agent_with.server)


def test_a_function_can_ask_for_the_context_of_its_call(agent_with, last_result):
    def where(context: ToolContext, note: str = "") -> str:
        """Say where."""
        context.emit("looking")
        return context.workspace.name + note

    assert "context" not in tool(where).tool.spec.parameters["properties"]
    agent = agent_with([call("where", note="!"), say("there")], tools=[where])

    async def main() -> list[str]:
        return [event.text async for event in agent.run("Where?") if isinstance(event, ev.ToolOutput)]

    assert asyncio.run(main()) == ["looking"]
    assert last_result(agent_with.server) == "workspace!"


def test_an_interrupt_does_not_wait_for_a_function_in_a_thread(agent_with):
    begun, let_go = threading.Event(), threading.Event()

    def wait() -> str:
        """Wait."""
        begun.set()
        let_go.wait(60)
        return "late"

    agent = agent_with([call("wait"), say("never")], tools=[wait])

    async def main() -> str:
        async with agent.session() as session:
            run = session.send("Wait")
            async for event in run:
                if isinstance(event, ToolStarted):
                    await asyncio.to_thread(begun.wait, 20)
                    await session.interrupt()
            return run.result.status

    try:
        assert asyncio.run(main()) == "interrupted"
    finally:
        let_go.set()


def test_giving_a_function_allows_its_calls_and_ask_makes_them_questions(agent_with):
    @tool(ask=True)
    def pay(amount: int) -> str:
        """Pay."""
        return f"paid {amount}"

    asked = list[str]()

    def approve(question: ev.ApprovalRequested) -> bool:
        asked.append(f"{question.tool}: {question.summary}")
        return True

    script = [call("price", item="lamp"), call("pay", amount=5), say("paid")]
    agent = agent_with(script, tools=[price, pay], permission="manual", approve=approve)
    assert agent.run_sync("Buy a lamp").status == "done"
    assert asked == ["pay: pay 5"]
    asked.clear()
    agent = agent_with(script, tools=[price, pay], permission="auto")
    assert agent.run_sync("Buy a lamp").status == "denied"


def test_rules_of_the_settings_hold_for_a_programs_functions(agent_with, last_result):
    agent = agent_with(
        [call("price", item="lamp"), say("no")],
        tools=[price],
        settings={"permission_deny": ["price"], "sandbox": "off"},
    )
    agent.run_sync("How much?")
    assert last_result(agent_with.server).startswith("Denied:")


def test_an_agent_can_have_the_programs_tools_alone(agent_with):
    agent = agent_with([call("shell", command="id"), say("no")], tools=[price], builtin_tools=[])
    agent.run_sync("Who am I?")
    block = {spec["function"]["name"] for spec in agent_with.server.chats[0].fields["tools"]}
    assert block & {"shell", "read", "write", "edit"} == set()
    assert "price" in block
    assert "There is no tool named 'shell'" in str(agent_with.server.chats[-1].messages[-1])


def test_a_small_window_still_gets_the_schemas_of_the_programs_tools(agent_with):
    agent = agent_with([say("hi")], tools=[price], settings={"context_window": 8000, "sandbox": "off"})
    agent.run_sync("hi")
    assert "price" in [spec["function"]["name"] for spec in agent_with.server.chats[0].fields["tools"]]


def test_a_name_that_is_taken_is_refused_before_anything_runs(agent_with):
    @tool(name="read")
    def mine() -> str:
        """Read."""
        return ""

    @tool
    def bash() -> str:
        """Be another name of shell."""
        return ""

    for taken in (mine, bash):
        with pytest.raises(ConfigError, match="two tools are named") as refused:
            agent_with([], tools=[taken]).run_sync("hi")
        assert "@tool(name=" in refused.value.fix


def test_a_function_that_a_model_cannot_be_told_about_is_refused_where_it_is_defined():
    def untyped(x) -> None:
        """Take anything."""

    def silent(x: int) -> None: ...

    def many(*x: int) -> None:
        """Take many."""

    def odd(x: complex) -> None:
        """Take a complex number."""

    refused: list[Any] = [
        (untyped, "the argument x of the tool untyped has no type hint"),
        (silent, "the tool silent has no description"),
        (many, "the argument x of the tool many has no name for the model"),
        (odd, "the arguments of the tool odd cannot be described"),
        (lambda: None, "'<lambda>' cannot be the name of a tool"),
    ]
    for function, why in refused:
        with pytest.raises(ConfigError, match=why):
            tool(function)
    with pytest.raises(ConfigError, match="effect of odd must be read, write, exec, net, not 'all'"):
        tool(effect="all")(odd)  # type: ignore[call-overload]
