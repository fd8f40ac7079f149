"""Views: the display of a session, the parts that are fetched on demand, and the purpose of its tasks."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any

import anyio.to_thread
from msgspec import Meta, Struct
from msgspec.structs import asdict, replace
from starlette.responses import Response

from lmagent.core import events as ev
from lmagent.core.errors import StoreError
from lmagent.core.messages import Image
from lmagent.core.view import (
    Block,
    BranchBlock,
    NoticeBlock,
    Pending,
    TextBlock,
    ThinkingBlock,
    ToolBlock,
    UserBlock,
    View,
)
from lmagent.core.work import Plan, TaskState
from lmagent.engine.state import SessionState
from lmagent.engine.undo import changes_in, difference
from lmagent.gateway.api.files import SANDBOX, judged
from lmagent.gateway.compat.http import state_of
from lmagent.gateway.gateway import Gateway
from lmagent.gateway.http.errors import Refusal, refusing
from lmagent.gateway.http.route import Call, Routes

ROUTES = Routes()

SHOWN = 8_000  # characters of a result in a view; the rest is fetched with its call
PIECE = 1_000_000  # bytes of an artifact per answer


class ViewQuery(Struct, frozen=True):
    """How many blocks, from the end."""

    last: Annotated[int, Meta(ge=1, le=500)] = 60


class BlocksQuery(Struct, frozen=True):
    """Blocks before an index."""

    before: Annotated[int, Meta(ge=0)]
    count: Annotated[int, Meta(ge=1, le=500)] = 60


class ArtifactQuery(Struct, frozen=True):
    """A part of an artifact, in bytes."""

    offset: Annotated[int, Meta(ge=0)] = 0
    limit: Annotated[int, Meta(ge=1, le=PIECE)] = PIECE


class ShownTool(ToolBlock, frozen=True, tag_field="kind", tag="tool"):
    """A call, as `ToolBlock`; `cut`: its result is longer than the content here."""

    cut: bool = False


ShownBlock = UserBlock | TextBlock | ThinkingBlock | ShownTool | NoticeBlock | BranchBlock


class ShownView(View, frozen=True):
    """As `View`, with the last of its blocks."""

    blocks: tuple[ShownBlock, ...] = ()


class Page(Struct, frozen=True):
    """The display of a session up to its event `seq`, with the last blocks; `first` is the index of the first block."""

    seq: int
    view: ShownView
    first: int
    total: int


class Blocks(Struct, frozen=True):
    """Blocks, and the index of the first of them."""

    blocks: tuple[ShownBlock, ...]
    first: int


class WholeCall(Struct, frozen=True):
    """A call with its whole record."""

    tool: str
    arguments: str  # as the model wrote them
    summary: str
    status: str = "pending"  # how it ended; pending or running before
    content: str = ""  # the result as the model received it
    artifact: str = ""  # blob of the whole output, if `content` is a part of it, else empty
    size: int = 0  # bytes of the whole output
    diff: str = ""  # its changes to files
    duration: float = 0.0  # seconds


class Changes(Struct, frozen=True):
    """A session's changes, as a unified diff; `redo`: whether an undone change can be redone."""

    text: str
    redo: bool = False


@ROUTES.get("/api/sessions/{session}/view", "The display of a session, with its last blocks", place="gateway")
async def show_view(call: Call, query: ViewQuery) -> Page:
    gateway, session = call.gateway, await call.known_session()
    seq, view, blocks = await gateway.views.look(session)
    first = max(0, len(blocks) - query.last)
    facts: dict[str, Any] = asdict(view)
    facts["approvals"] = (*view.approvals, *(await _asked_below(gateway, session) if view.state != "idle" else ()))
    if facts["approvals"]:
        facts["state"] = "waiting"
    facts["blocks"] = _shown(blocks[first:])
    return Page(seq, ShownView(**facts), first, len(blocks))


@ROUTES.get("/api/sessions/{session}/blocks", "Earlier blocks of the display", place="gateway")
async def show_blocks(call: Call, query: BlocksQuery) -> Blocks:
    gateway, session = call.gateway, await call.known_session()
    _, _, blocks = await gateway.views.look(session)
    before = min(query.before, len(blocks))
    first = max(0, before - query.count)
    return Blocks(_shown(blocks[first:before]), first)


def _shown(blocks: Sequence[Block]) -> tuple[ShownBlock, ...]:
    def cut(block: Block) -> ShownBlock:
        if not isinstance(block, ToolBlock):
            return block
        facts: dict[str, Any] = {**asdict(block), "content": block.content[:SHOWN]}
        return ShownTool(**facts, cut=len(block.content) > SHOWN)

    return tuple(map(cut, blocks))


async def _asked_below(gateway: Gateway, session: str) -> list[Pending]:
    """Return the open approvals of running sub-agents, which are not in their parent's log."""

    def askers() -> list[str]:
        with gateway.index() as index:
            return index.askers().get(session, [])

    views = [await gateway.views.look(child) for child in await anyio.to_thread.run_sync(askers)]
    return [asked for _, view, _ in views for asked in view.approvals]


# --- parts ----------------------------------------------------------------------------------------------------------


@ROUTES.get("/api/sessions/{session}/calls/{call_id:path}", "A call with all of its result", place="gateway")
def show_call(call: Call) -> WholeCall:
    found, call_id = None, call.path["call_id"]
    for event in call.gateway.host.store.read(call.session()):
        match event:
            case ev.MessageAdded():
                for made in event.message.tool_calls:
                    if made.id == call_id:
                        found = WholeCall(made.name, made.arguments, made.name)
            case ev.ToolStarted() if event.call_id == call_id:
                found = found or WholeCall(event.tool, "", event.tool)
                found = replace(found, tool=event.tool, summary=event.summary or event.tool, status="running")
            case ev.ToolFinished() if event.call_id == call_id and found is not None:
                diff = event.data.get("diff", "")
                facts = (event.artifact or "", event.size, diff if isinstance(diff, str) else "", event.duration)
                found = WholeCall(event.tool, found.arguments, found.summary, event.status, event.content, *facts)
            case _:
                pass
    if found is None:
        raise _missing("call", call_id)
    return found


@ROUTES.get(
    "/api/sessions/{session}/artifacts/{sha}",
    "A part of an output that was too long for the model",
    media="text/plain",
    place="gateway",
)
def show_artifact(call: Call, query: ArtifactQuery) -> Response:
    """Send a part of an output that was too long for the model."""
    session, sha = call.session(), call.path["sha"]
    if len(sha) != 64 or not set(sha) <= set("0123456789abcdef"):
        raise _missing("artifact", sha)
    with refusing(StoreError, 404, "not_found"):
        content = call.gateway.host.store.get_blob(session, sha)
    piece = content[query.offset : query.offset + query.limit]
    headers = {**SANDBOX, "X-Size": str(len(content))}
    return Response(piece, media_type="text/plain; charset=utf-8", headers=headers)


@ROUTES.get(
    "/api/sessions/{session}/images/{input}/{number}",
    "An image of an input, the first is 0",
    media="image/*",
    place="gateway",
)
def show_image(call: Call) -> Response:
    number = call.path["number"]
    for event in call.gateway.host.store.read(call.session()):
        if isinstance(event, ev.InputReceived) and event.id == call.path["input"]:
            images = [part for part in event.message.parts if isinstance(part, Image)]
            if number in map(str, range(len(images))):
                data = base64.b64decode(images[int(number)].data)
                return Response(data, media_type=judged(data).media_type, headers=SANDBOX)
    raise _missing("image", number)


@ROUTES.get("/api/sessions/{session}/diff", "What a session changed, as a unified diff")
def show_diff(call: Call) -> Changes:
    session, host = call.session(), call.gateway.host
    store, snapshots = host.store, host.snapshots
    if snapshots is None:
        return Changes("")
    state = SessionState(session=session)
    for event in store.read(session):
        if isinstance(event, ev.FilesChanged | ev.FilesRestored):
            state.apply(event)
    changes = [change for event in state.changes for change in changes_in(event, partial(store.get_blob, session))]
    return Changes(difference(snapshots, changes), bool(state.undone))


def _missing(what: str, name: str) -> Refusal:
    return Refusal(404, "not_found", f"the session has no {what} {name[:80]!r}")


# --- work -------------------------------------------------------------------------------------------------------------


class Work(Struct, frozen=True):
    """The purpose of the tasks: the state of a batch, as the model wrote it, and the last approved plan."""

    state: TaskState | None
    plan: Plan | None


@ROUTES.get("/api/sessions/{session}/work", "Where long work stands", place="gateway")
async def show_work(call: Call) -> Work:
    session = await call.known_session()
    work = (await state_of(call.gateway, session)).work
    return Work(work.state if work.state != TaskState() else None, work.plan)
