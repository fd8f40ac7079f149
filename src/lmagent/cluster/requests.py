"""Requests that gateways forward to workers, through the tables `request` and `piece`.

The gateway's end and the worker's end exchange ASGI messages, as a server and an application do. Notifications wake
them; once a second they look anyway, so that a lost notification costs a second, and a dead process is noticed.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, MutableMapping, Set
from contextlib import suppress
from typing import Any, Literal

import anyio
import anyio.abc
from msgspec import Struct
from msgspec.msgpack import encode

from lmagent.cluster.database import Connection
from lmagent.cluster.member import Member
from lmagent.cluster.threads import in_thread
from lmagent.core.decoding import decode_msgpack
from lmagent.core.errors import LmagentError, StoreError, WorkerMissing
from lmagent.core.ids import new_id

__all__ = ["Message", "RequestEnd", "RequestHead", "Requests"]

Message = MutableMapping[str, Any]
"""An ASGI message (asgi.readthedocs.io, HTTP and WebSocket)."""

Work = Callable[[], Coroutine[Any, Any, None]]

POLL = 1.0
"""Seconds between two looks without a notification."""

JOIN = 0.02
"""Seconds within which messages are written together."""

LARGE = 256_000
"""Bytes of messages that are written at once."""

UNREAD = 8
"""Pieces that may wait for the other end; this one waits until that has read some."""

PAUSE = 0.5
"""Seconds between two looks, at most, at whether the other end has read some."""

PATIENCE = 15.0
"""Seconds for which a request waits for a worker: longer than the takeover of a session from a dead one."""

AWAY = 5.0
"""Seconds for which a message waits for a lost database."""

_ANYONE = "lmagent_request"

_LOOK = """
SELECT known.id, request.state, request.worker IS NOT NULL,
    living(CASE WHEN %(down)s THEN request.gateway ELSE request.worker END), piece.number, piece.body
FROM unnest(%(ids)s::text[], %(seen)s::integer[]) AS known (id, seen) LEFT JOIN request USING (id)
    LEFT JOIN piece ON piece.request = known.id AND piece.down = %(down)s AND piece.number > known.seen
ORDER BY known.id, piece.number
"""

_READ = """
DELETE FROM piece USING unnest(%(ids)s::text[], %(seen)s::integer[]) AS known (id, seen)
WHERE piece.request = known.id AND piece.down = %(down)s AND piece.number <= known.seen
    AND NOT (piece.down AND piece.number = 1)
"""

_ABANDONED = """
DELETE FROM request WHERE workspace = %s AND (state = 'left' OR NOT living(gateway))
    AND (state = 'ended' OR worker IS NULL OR NOT living(worker))
"""


class RequestHead(Struct, frozen=True):
    """A request without its body, and its sender, as the gateway knows it.

    Attributes:
        kind: `live` is not from a client: the answer is the text that is being written in a session.
        session: id of the session that it is for; empty for none.
        key: identifies the sender.
    """

    kind: Literal["http", "websocket", "live"]
    session: str = ""
    caller: str = ""
    key: bytes = b""
    method: str = "GET"
    path: str = "/"
    query: bytes = b""
    headers: tuple[tuple[bytes, bytes], ...] = ()
    client: tuple[str, int] | None = None


class RequestEnd:
    """One end of a request."""

    def __init__(self, requests: Requests, id: str, sent: int = 0) -> None:
        self.id = id
        self.seen = 0  # number of the last piece that was read
        self.begun = time.monotonic()
        self.is_added = True  # whether the request is in the table
        self._requests = requests
        self._inbox: deque[Message] = deque()
        self._failure: LmagentError | None = None
        self._news = anyio.Event()
        self._unwritten: list[Message] = []
        self._size = 0
        self._piece: list[bytes] = []  # the piece that is being written: after a failure, again with the same number
        self._sent = sent  # number of the last piece that was written
        self._writing = anyio.Lock()
        self._is_gone = False
        self._is_behind = False  # whether there may be more to read than this end has taken

    async def receive(self) -> Message:
        """Return the other end's next message. Raise WorkerMissing if that end is gone."""
        while not self._inbox:
            if self._failure is not None:
                raise self._failure
            if self._is_behind:
                self._is_behind = False
                self._requests.wake(self.id)
            self._news = anyio.Event()
            await self._news.wait()
        return self._inbox.popleft()

    async def send(self, message: Message) -> None:
        """Send a message, together with others that follow within `JOIN` seconds."""
        self._unwritten.append(message)
        self._size += len(message.get("body") or b"")
        if self._size >= LARGE:
            await self.flush()
        elif len(self._unwritten) == 1:
            self._requests.start(self._flush_soon)

    async def _flush_soon(self) -> None:
        await anyio.sleep(JOIN)
        with suppress(StoreError):  # the next look notices that the other end is lost
            await self.flush()

    async def flush(self, *, ends: bool = False) -> None:
        """Write the messages that wait; `ends`: there will be no more. Raise StoreError if the database is away."""
        async with self._writing:
            while (self._piece or self._unwritten) and not self._is_over:
                if not self._piece:
                    messages, self._unwritten, self._size = self._unwritten, [], 0
                    self._piece = [encode(messages)]
                unread = await self._write(self._piece)
                self._sent, self._piece, pause = self._sent + 1, [], JOIN
                while unread > UNREAD and not (ends or self._is_over):
                    await anyio.sleep(pause)
                    pause = min(PAUSE, pause * 1.5)
                    unread = await self._write([])
            if ends:
                await self._write([], ends=True)

    @property
    def _is_over(self) -> bool:
        """Whether the other end reads no more."""
        return self._is_gone or self._failure is not None

    async def _write(self, bodies: list[bytes], *, ends: bool = False) -> int:
        unread = await self._requests.write(self.id, self._sent + 1, bodies, ends=ends)
        self._is_gone = unread is None
        return unread or 0

    def is_ready(self) -> bool:
        """Whether this end takes more: its messages have been received. If not, it asks for a look afterwards."""
        self._is_behind = bool(self._inbox)
        return not self._is_behind

    def take(self, number: int, body: bytes) -> None:
        """Take a piece of the other end."""
        self.seen = number
        self._inbox.extend(decode_msgpack(body, list[dict[str, Any]]))
        self._news.set()

    def fail(self, failure: LmagentError) -> None:
        """Let `receive` raise, after the messages that have arrived."""
        self._failure = self._failure or failure
        self._news.set()


class Requests:
    """The ends of requests in this process, which is a gateway or, if it `answers`, a worker."""

    def __init__(self, member: Member, workspace: str, *, answers: bool = False) -> None:
        self.workspace = workspace
        self._member = member
        self._answers = answers
        self._ends: dict[str, RequestEnd] = {}
        self._woken: set[str] = set()
        self._taking = anyio.Lock()
        self._news = anyio.Event()
        self._tasks: anyio.abc.TaskGroup | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._process = 0
        self._unwatch: list[Callable[[], None]] = []

    # --- running ----------------------------------------------------------------------------------------------------

    async def run(self, taking: Work | None = None) -> None:
        """Bring messages until cancelled; a worker's `taking` is called when there may be requests to take."""
        self._loop = asyncio.get_running_loop()
        try:
            async with anyio.create_task_group() as self._tasks:
                looked = float("-inf")
                while True:
                    self._news = anyio.Event()
                    every = time.monotonic() - looked >= POLL
                    looked = time.monotonic() if every else looked
                    woken, self._woken = self._woken, set()
                    with suppress(StoreError):  # the database is away: requests wait, or time out
                        await self._join()
                        await self._look(self._known(self._ends if every else woken, woken))
                        if every and not self._answers:
                            await self._leave_unknown()
                        if taking is not None and (every or not woken <= self._ends.keys()):
                            await taking()
                    with anyio.move_on_after(max(0.0, looked + POLL - time.monotonic())):
                        await self._news.wait()
        finally:
            self._leave()

    def start(self, work: Work) -> None:
        assert self._tasks is not None
        self._tasks.start_soon(work)

    async def _join(self) -> None:
        """Listen to the channel of this process, whose number changes if it was taken for dead."""
        process = await in_thread(lambda: self._member.presence.id)
        if process != self._process:
            self._leave()
            channels = (f"lmagent_process_{process}", *((_ANYONE,) if self._answers else ()))
            self._unwatch = [self._member.listener.watch(channel, self._heard) for channel in channels]
            self._process = process

    def _leave(self) -> None:
        for unwatch in self._unwatch:
            unwatch()
        self._unwatch = []

    def _heard(self, payload: str) -> None:
        """Take a notification, in the listener's thread."""
        assert self._loop is not None
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self.wake, payload)

    def wake(self, id: str) -> None:
        """Look at a request, and at whether there are new ones; with an empty id, at the latter alone."""
        self._woken.add(id)
        self._news.set()

    def _known(self, ids: Iterable[str], woken: Set[str]) -> list[RequestEnd]:
        """Return the ends of these ids that take messages, and whose requests are in the table.

        Those for which a notification came are there.
        """
        ends = (self._ends[id] for id in ids if id in self._ends)
        return [end for end in ends if (end.is_added or end.id in woken) and end.is_ready()]

    # --- looking ----------------------------------------------------------------------------------------------------

    async def _look(self, ends: list[RequestEnd]) -> None:
        """Bring what the other ends have sent, and notice that they are gone."""
        if not ends:
            return
        values = {"down": self._answers, "ids": [end.id for end in ends], "seen": [end.seen for end in ends]}

        def work(connection: Connection) -> list[tuple[Any, ...]]:
            connection.execute(_READ, values)
            return connection.execute(_LOOK, values).fetchall()

        rows = await in_thread(lambda: self._member.database.run(work, patience=0))
        for id, state, is_taken, is_alive, number, body in rows:
            if (end := self._ends.get(id)) is None:
                continue
            if number is not None and number > end.seen:
                end.take(number, body)
            if self._answers:
                if state != "open" or not is_alive:
                    end.fail(WorkerMissing("the client has gone"))
            elif state != "open" or (is_taken and not is_alive):
                end.fail(_lost())
            elif not is_taken and time.monotonic() - end.begun > PATIENCE:
                end.fail(await self._withdraw(id))

    async def _withdraw(self, id: str) -> LmagentError:
        """Delete a request that no worker has taken, so that none carries it out later."""
        if not await self._run("DELETE FROM request WHERE id = %s AND worker IS NULL RETURNING id", id):
            return _lost()
        return WorkerMissing(
            f"no worker answers for the workspace {self.workspace}; nothing was done",
            fix=f"start one where the workspace is: lmagent worker --label {self.workspace}=PATH",
        )

    # --- the gateway's end ------------------------------------------------------------------------------------------

    async def begin(self, head: RequestHead, first: Message) -> RequestEnd:
        """Forward a request with its first message to the worker that has its session open.

        If none has, any worker may answer, but for live text.
        """
        await self._join()
        end = RequestEnd(self, new_id() + new_id(), sent=1)
        end.is_added = False  # a look that does not find it yet would take it for lost
        self._ends[end.id] = end  # before it is added, since its answer may come at once
        only_open = head.kind == "live"
        values = (end.id, self.workspace, head.session, only_open, encode(head), self._process, encode([first]))
        try:
            await self._run("SELECT request_add(%s, %s, %s, %s, %s, %s, %s)", *values)
        except BaseException:
            self._ends.pop(end.id)
            raise
        end.is_added = True
        return end

    async def worker_of(self, session: str) -> int:
        """Return the number of the living worker that has a session open; 0 for none."""
        rows = await self._run("SELECT coalesce(session_worker(%s, %s), 0)", self.workspace, session)
        return int(rows[0][0])

    async def leave(self, end: RequestEnd) -> None:
        """Forget a request. A worker that still works on it learns that the client has gone."""
        self._ends.pop(end.id, None)
        with suppress(StoreError):
            if not await self._delete(end.id):
                await end.flush(ends=True)

    async def _leave_unknown(self) -> None:
        """Leave the requests that clients left while the database was away."""
        mine = "SELECT id FROM request WHERE workspace = %s AND gateway = %s AND state <> 'left'"
        rows = await self._run(mine, self.workspace, self._process)
        for id in [id for (id,) in rows if id not in self._ends]:
            if not await self._delete(id):
                await self.write(id, 1, [], ends=True)

    async def _delete(self, id: str) -> bool:
        """Delete a request if no worker works on it."""
        gone = "DELETE FROM request WHERE id = %s AND (worker IS NULL OR state = 'ended') RETURNING id"
        return bool(await self._run(gone, id))

    # --- the worker's end -------------------------------------------------------------------------------------------

    async def take(self, *, others: bool) -> tuple[RequestHead, RequestEnd] | None:
        """Take the next request whose session this process has open; with `others` also one that is for any worker."""
        async with self._taking:
            values = (self.workspace, self._process, others, list(self._ends))
            rows = await self._run("SELECT * FROM request_take(%s, %s, %s, %s::text[])", *values)
            if not rows:
                return None
            ((id, head, first),) = rows
            end = self._ends[id] = RequestEnd(self, id)
            end.take(1, first)
            return decode_msgpack(head, RequestHead), end

    async def finish(self, end: RequestEnd) -> None:
        """Say that this end has sent all, as soon as the database can be reached."""
        await self._surely(lambda: end.flush(ends=True))
        self._ends.pop(end.id, None)

    async def give_back(self, end: RequestEnd) -> None:
        """Let another worker answer a request, of which only the first piece was read: the session was opened there."""
        async with self._taking:
            await self._surely(lambda: self._run("SELECT request_give_back(%s, %s)", end.id, self._process))
            self._ends.pop(end.id)

    async def _surely(self, work: Callable[[], Coroutine[Any, Any, object]]) -> None:
        while True:
            try:
                with anyio.CancelScope(shield=True):
                    await work()
                break
            except StoreError:
                await anyio.sleep(POLL)

    async def tidy(self) -> None:
        """Delete the requests whose client has gone and at which no worker is at work."""
        await self._run(_ABANDONED, self.workspace)

    # --- the database -----------------------------------------------------------------------------------------------

    async def write(self, id: str, number: int, bodies: list[bytes], *, ends: bool) -> int | None:
        """Write pieces, the first of them with `number`; return how many are unread, None if the request is gone."""
        query = "SELECT request_send(%s, %s, %s, %s::bytea[], %s)"
        rows = await self._run(query, id, not self._answers, number, bodies, ends)
        return rows[0][0]

    async def _run(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        def work(connection: Connection) -> list[tuple[Any, ...]]:
            return connection.execute(query.encode(), values).fetchall()

        return await in_thread(lambda: self._member.database.run(work, patience=AWAY))


def _lost() -> WorkerMissing:
    return WorkerMissing(
        "the worker that had this request has died, and may have carried it out",
        fix="look at the session, and send it again if it is missing there",
    )
