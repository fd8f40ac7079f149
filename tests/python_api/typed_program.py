"""A program as users write it, which pyright checks strictly: the type of an answer follows the one that was given."""

from __future__ import annotations

import asyncio
from typing import Literal, assert_type

import msgspec

from lmagent import Agent, ApprovalRequested, RunResult, TextDelta, ToolContext, ToolStarted, TurnFinished, tool


class Invoice(msgspec.Struct):
    total: float


@tool
def price(item: str, currency: Literal["EUR", "USD"] = "EUR") -> str:
    """Return the price of an item."""
    return f"{item}: 5 {currency}"


@tool(effect="read", ask=True)
async def stock(item: str, context: ToolContext) -> int:
    """Count the items in stock."""
    context.emit(item)
    return 3


def plain(item: str) -> str:
    """Do something else."""
    return item


async def approve(question: ApprovalRequested) -> bool | str:
    return question.tool == "stock" or "only stock may be asked for"


def make(workspace: str, endpoint: str) -> Agent:
    return Agent(
        workspace,
        endpoint=endpoint,
        model="m",
        tools=[price, stock, plain],
        permission="normal",
        approve=approve,
        settings={"sandbox": "off"},
    )


async def follow(agent: Agent) -> str:
    async with agent, agent.session() as session:
        run = session.send("What does a lamp cost?")
        text = ""
        async for event in run:
            match event:
                case TextDelta():
                    text += assert_type(event.text, str)
                case ToolStarted():
                    await session.steer("Be quick.")
                case TurnFinished():
                    assert_type(event.answer, str)
                case _:
                    pass
        assert_type(run.result, RunResult[None])
        return text


def typed(agent: Agent) -> float:
    assert_type(price("lamp"), str)
    assert_type(agent.run_sync("How many?", answer=int).answer, int)
    result = agent.run_sync("Bill", answer=Invoice)
    assert_type(result, RunResult[Invoice])
    return result.answer.total


def main(workspace: str, endpoint: str) -> tuple[str, float]:
    agent = make(workspace, endpoint)
    return asyncio.run(follow(agent)), typed(agent)
