"""The log of one session, open for writing.

`append` never gives up control between stamping an event and having it in the file: two tasks that append at once
cannot change places, and a cancelled task has either written its event or not begun. The sync is inside as well: it
takes 0.1 ms on a solid-state disk and a few on a slow one, and a worker thread would add 0.1 ms and a moment in which
an event is on disk while the program does not know it.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from lmagent.core.errors import SessionNotFound, StoreError
from lmagent.core.events import DurableEvent, SessionCreated, decode, encode
from lmagent.core.ids import new_id
from lmagent.core.ports import Clock, Damage
from lmagent.store.files import FILE_MODE, OPEN_FLAGS, make_private, store_error, sync_file, sync_folder, write_whole
from lmagent.store.lock import Lock, hold
from lmagent.store.scan import LogLine, in_order, lines

if TYPE_CHECKING:
    from lmagent.store.blobs import Blobs

EVENTS, LOCK, BLOBS = "events.jsonl", "lock", "blobs"


class JsonlLog:
    """The log of one session, open for writing by this process alone."""

    session: str
    damage: Sequence[Damage]

    def __init__(self, folder: Path, clock: Clock) -> None:
        self.session = folder.name
        self.damage = ()
        self.folder = folder
        self.path = folder / EVENTS
        self._clock = clock
        self._lock: Lock | None = None
        self._fd = -1
        self._seq = 0
        self._size = 0  # bytes that are known to be whole events
        self._begun = False
        self._opened: list[DurableEvent] | None = []
        self._opened_size = 0
        self._unsynced: list[Path] = []  # folders with new entries
        self._refusal: StoreError | None = None

    # --- opening ----------------------------------------------------------------------------------------------

    @classmethod
    def open(cls, folder: Path, clock: Clock) -> JsonlLog:
        """Open an existing log; an incomplete last line, of a writer that died, is cut off.

        Raises SessionNotFound, SessionBusy or StoreError.
        """
        _require_real_folders(folder)
        log = cls(folder, clock)
        if not log.path.is_file():
            raise SessionNotFound(f"there is no session {folder.name}", terminal="lmagent sessions list")
        try:
            log._lock = hold(folder / LOCK, log.session)
            try:
                log._fd = os.open(log.path, os.O_RDWR | os.O_APPEND | OPEN_FLAGS)
                log._load()
            except BaseException:
                log.close()
                raise
        except FileNotFoundError:
            raise SessionNotFound(f"there is no session {folder.name}", terminal="lmagent sessions list") from None
        except OSError as error:
            raise store_error(error, "the session could not be opened for writing", log.path) from error
        return log

    def _load(self) -> None:
        events: list[DurableEvent] = []
        damage: list[Damage] = []
        tail: LogLine | None = None
        with self.path.open("rb") as stream:
            for line in in_order(lines(stream)):
                self._seq = max(self._seq, line.seq)
                if line.event is not None:
                    events.append(line.event)
                else:
                    damage.append(Damage(line.number, line.reason, torn=False, size=len(line.raw)))
                if tail is None or line.number > tail.number:
                    tail = line
        damage.sort(key=lambda item: item.line)
        if tail is not None and tail.kind == "damaged":
            damage[-1] = Damage(tail.number, tail.reason, torn=True, size=len(tail.raw))
            os.ftruncate(self._fd, tail.start)
        elif tail is not None and not tail.whole:
            # The event is whole and only its line end is missing: an editor saved the file without it.
            write_whole(self._fd, b"\n")
        self._size = self._opened_size = os.fstat(self._fd).st_size
        self._opened = events
        self.damage = (*missing_beginning(events), *damage)

    def _begin(self) -> None:
        try:
            _require_real_folders(self.folder)
            home = self.folder.parent.parent
            self._unsynced = [*make_private(self.folder), self.folder]
            if home.name == ".lmagent":
                _keep_out_of_git(home)
            self._lock = hold(self.folder / LOCK, self.session)
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | OPEN_FLAGS
            self._fd = os.open(self.path, flags, FILE_MODE)
        except OSError as error:
            self._refusal = store_error(error, "the session could not be begun", self.path)
            self.close()
            raise self._refusal from error
        self._begun = True

    # --- the port -----------------------------------------------------------------------------------------------

    def events(self) -> Iterable[DurableEvent]:
        """Return the events that were in the log when it was opened, in order.

        The first call hands them over, since a long log is large; a later call reads the file again.
        """
        events, self._opened = self._opened, None
        return events if events is not None else self._read_again()

    def _read_again(self) -> Iterable[DurableEvent]:
        if not self._opened_size:
            return
        with self.path.open("rb") as stream:
            for line in in_order(lines(stream)):
                if line.start >= self._opened_size:
                    return
                if line.event is not None:
                    yield line.event

    async def append(self, event: DurableEvent, *, sync: bool = False) -> DurableEvent:
        """Write the event and return it with its `seq`, and with `id` and `ts` if it had none.

        The bytes have reached the kernel when this returns (a SIGKILL does not lose them); with `sync`, the disk.

        Raises StoreError: it could not be written whole; the log is unchanged, and accepts nothing more until it is
        opened again.
        """
        if self._refusal is not None:
            raise StoreError(
                f"nothing more is recorded: {self._refusal.message}",
                fix=self._refusal.fix,
                terminal=self._refusal.terminal,
            )
        if self._fd < 0:
            self._begin()
        stamped, line = stamp(event, self._seq + 1, self._clock)
        try:
            write_whole(self._fd, line)
            if sync:
                self._sync()
        except OSError as error:
            self._undo(len(line))
            self._refusal = store_error(error, "the session's log could not be written", self.path)
            raise self._refusal from error
        except BaseException:
            self._undo(len(line))
            raise
        self._size += len(line)
        self._seq += 1
        return stamped

    def _sync(self) -> None:
        if os.fstat(self._fd).st_nlink == 0:
            raise FileNotFoundError(2, "the log was deleted while the session was open", str(self.path))
        sync_file(self._fd)
        while self._unsynced:
            sync_folder(self._unsynced[-1])
            self._unsynced.pop()

    def _undo(self, length: int) -> None:
        with contextlib.suppress(OSError):  # an incomplete line then stays, and the next open cuts it off
            if self._size < os.fstat(self._fd).st_size <= self._size + length:
                os.ftruncate(self._fd, self._size)
        if self._begun and self._size == 0:  # the very first event: leave no empty session
            with contextlib.suppress(OSError):
                os.unlink(self.path)
            self.close()
            with contextlib.suppress(OSError):
                os.unlink(self.folder / LOCK)
                os.rmdir(self.folder)

    @cached_property
    def _blobs(self) -> Blobs:
        from lmagent.store.blobs import Blobs  # few sessions have large results

        return Blobs(self.folder / BLOBS)

    async def put_blob(self, content: bytes) -> str:
        """Keep `content` and return its SHA-256 in hexadecimal.

        Raises StoreError if it could not be written.
        """
        return self._blobs.put(content)

    async def adopt_blob(self, path: Path) -> str:
        """Move a file into the blobs and return its SHA-256.

        Raises StoreError if it could not be moved.
        """
        return self._blobs.adopt(path)

    def get_blob(self, sha256: str) -> bytes:
        """Return the content of a blob, by its hash or a unique prefix of at least 8 digits.

        Raises StoreError if the blob does not exist, or its content no longer matches its hash.
        """
        return self._blobs.get(sha256)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        if self._lock is not None:
            self._lock.release()
            self._lock = None
        if self._refusal is None:
            self._refusal = StoreError(f"session {self.session} is closed")


def log_facts(folder: str | Path) -> os.stat_result | None:
    """Return the system's facts about the log in a session's folder; None without one: a link or a pipe is no log."""
    try:
        facts = os.lstat(os.path.join(folder, EVENTS))
    except OSError:
        return None
    return facts if stat.S_ISREG(facts.st_mode) else None


def stamp(event: DurableEvent, seq: int, clock: Clock) -> tuple[DurableEvent, bytes]:
    """Return the event in its stored form, and its line. An existing `id` and `ts` (an import) stay."""
    stamped = msgspec.structs.replace(event, id=event.id or new_id(), seq=seq, ts=event.ts or clock.now())
    try:
        return stamped, encode(stamped) + b"\n"
    except (UnicodeEncodeError, TypeError):
        line = msgspec.json.encode(_storable(msgspec.to_builtins(stamped, str_keys=True, enc_hook=str)))
        return decode(line), line + b"\n"


def _storable(value: Any) -> Any:
    """Replace what UTF-8 cannot hold: half characters (of undecodable file names) become U+FFFD."""
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
    if isinstance(value, dict):
        return {_storable(key): _storable(item) for key, item in value.items()}  # type: ignore[reportUnknownVariableType]
    if isinstance(value, list | tuple):
        return [_storable(item) for item in value]  # type: ignore[reportUnknownVariableType]
    return value


def missing_beginning(events: list[DurableEvent]) -> list[Damage]:
    if events and isinstance(events[0], SessionCreated):
        return []
    what = "the log does not begin with session.created" if events else "the log holds no event"
    return [Damage(1, f"{what}: the system text and the tools of the session are unknown", torn=False, size=0)]


def _require_real_folders(folder: Path) -> None:
    """Raise StoreError for a `.lmagent`, or a folder of the sessions in it, that is a link or a file."""
    sessions, home = folder.parent, folder.parent.parent
    for place in (home, sessions) if home.name == ".lmagent" else ():
        if place.is_symlink():
            what = "a symbolic link, and lmagent keeps its records in the workspace itself"
        elif place.exists() and not place.is_dir():
            what = "a file, and lmagent keeps its records in a folder of that name"
        else:
            continue
        raise StoreError(f"{place} is {what}", fix=f"move it away, then try again: mv {place} {place}.old")


def _keep_out_of_git(home: Path) -> None:
    """Make `.lmagent` ignore itself, to keep sessions out of commits."""
    try:
        fd = os.open(home / ".gitignore", os.O_WRONLY | os.O_CREAT | os.O_EXCL | OPEN_FLAGS, FILE_MODE)
    except FileExistsError:
        return
    try:
        write_whole(fd, b"*\n")
    finally:
        os.close(fd)
