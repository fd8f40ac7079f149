"""The store: all sessions of a workspace, each a folder with its log, its lock and its blobs.

<workspace>/.lmagent/sessions/<id>/events.jsonl    one event a line, append-only
                                   lock             names the process that writes it
                                   blobs/<sha256>   big content
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from lmagent.core.errors import SessionDamaged, SessionNotFound, StoreError
from lmagent.core.events import DurableEvent, SessionCreated, SessionForked
from lmagent.core.ids import SESSION_RULE, is_session_id, new_id
from lmagent.core.ports import Clock
from lmagent.store.files import store_error
from lmagent.store.lock import hold, is_held
from lmagent.store.log import BLOBS, EVENTS, LOCK, JsonlLog, log_facts
from lmagent.store.scan import in_order, lines

if TYPE_CHECKING:
    from lmagent.store.follow import LogTail
    from lmagent.store.index import SessionIndex
    from lmagent.store.port import LogMark

__all__ = ["JsonlLog", "JsonlStore"]


class JsonlStore:
    """Sessions as files."""

    def __init__(self, root: Path, clock: Clock) -> None:
        self.root = root
        self._clock = clock

    # --- writing ------------------------------------------------------------------------------------------------

    def create(self, session: str) -> JsonlLog:
        """Return a new, empty log. Nothing is on disk before the first append.

        Raises StoreError if a session of that id exists, or the id cannot name a folder.
        """
        folder = self._folder(session)
        if (folder / EVENTS).exists():
            raise StoreError(f"there is a session {session} already: {folder}", terminal=f"lmagent --resume {session}")
        return JsonlLog(folder, self._clock)

    def open(self, session: str) -> JsonlLog:
        """Open an existing log for writing. Raises SessionNotFound, SessionBusy or StoreError."""
        return JsonlLog.open(self._known(session), self._clock)

    async def fork(
        self, source: str, session: str, through_seq: int | None = None, *, moved: bool = False
    ) -> SessionForked:
        """Begin `session` as a copy of `source` up to and including event `through_seq` (all without it).

        The source may be running meanwhile; it is only read. `moved`: it is about to be deleted, and the copy takes
        its place.

        Raises SessionNotFound or StoreError.
        """
        from lmagent.store.fork import fork_log  # rare

        return fork_log(self._known(source), self._folder(session), through_seq, self._clock, moved=moved)

    def begin_anew(self, session: str, aside: str, opening: SessionCreated) -> None:
        """Keep a session's log as the session `aside`, and begin a new one in its place.

        Raises SessionNotFound, SessionBusy or StoreError.
        """
        from lmagent.store.fork import begin_anew  # rare

        begin_anew(self._known(session), self._folder(aside), opening, self._clock)

    def delete(self, session: str) -> None:
        """Delete a session with its blobs. Raises SessionNotFound, SessionBusy or StoreError."""
        import shutil  # rare, and not light

        folder = self._known(session)
        try:
            lock = hold(folder / LOCK, session)
            try:
                os.unlink(folder / EVENTS)  # from here on the session does not exist, whatever happens
                with suppress(OSError):  # frees the name for a new session; Windows moves nothing that is open
                    folder = folder.rename(folder.with_name(f"{session}~{new_id()}"))
            finally:
                lock.release()
            shutil.rmtree(folder)
        except FileNotFoundError:
            raise SessionNotFound(f"there is no session {session}", terminal="lmagent sessions list") from None
        except OSError as error:
            raise store_error(error, f"session {session} could not be deleted", folder) from error

    # --- reading --------------------------------------------------------------------------------------------------

    def read(self, session: str, after: int = 0) -> Iterable[DurableEvent]:
        """Read events with `seq` > `after`, without opening the session for writing; damaged lines are skipped.

        Raises SessionNotFound or StoreError.
        """
        return _events(self._known(session) / EVENTS, after)

    def follow(self, session: str, after: int = 0) -> AsyncIterator[DurableEvent]:
        from lmagent.store.follow import follow_log  # only for watching another process

        return follow_log(self._folder(session) / EVENTS, after)

    def get_blob(self, session: str, sha256: str) -> bytes:
        """Return a blob of a session that is not open, by its hash or a unique prefix of at least 8 digits.

        Raises SessionNotFound or StoreError.
        """
        from lmagent.store.blobs import Blobs  # few sessions have large results

        return Blobs(self._known(session) / BLOBS).get(sha256)

    def is_running(self, session: str) -> bool:
        """Whether a living process has the session open for writing."""
        return is_held(self._folder(session) / LOCK)

    def tail(self, session: str, after: int = 0, mark: LogMark | None = None) -> LogTail:
        """Return a reader of the log, which need not exist yet. `mark` is from an earlier reader of this session."""
        from lmagent.store.follow import NOWHERE, LogTail

        return LogTail(self._folder(session) / EVENTS, after, mark or NOWHERE)

    def last_seq(self, session: str) -> int:
        """Return the `seq` of a session's last event; 0 if it does not exist."""
        from lmagent.store.follow import last_seq

        return last_seq(self._folder(session) / EVENTS)

    def size(self, session: str) -> int:
        """Return the bytes of a session's log; 0 if it does not exist."""
        facts = log_facts(self._folder(session))
        return facts.st_size if facts is not None else 0

    def exists(self, session: str) -> bool:
        folder = self.root / session
        return is_session_id(session) and not folder.is_symlink() and log_facts(folder) is not None

    def index(self) -> SessionIndex:
        """Open the index of the sessions, which is beside their folder."""
        from lmagent.store.folder import FolderSource
        from lmagent.store.index import SessionIndex  # loads SQLite

        return SessionIndex(FolderSource(self.root))

    def feed(self) -> SessionIndex:
        """Open the index, which numbers the events of all sessions."""
        return self.index()

    # --- something else in the place of a session -----------------------------------------------------------------

    def require_readable(self, session: str) -> None:
        """Raise SessionNotFound if no session has this id, SessionDamaged if its log cannot be read."""
        log = self._known(session) / EVENTS
        if not os.access(log, os.R_OK, effective_ids=True):
            raise SessionDamaged(
                f"the log of session {session} may not be read by the user of this program",
                fix=f"look at the permissions of {log}",
            )

    def require_free(self, session: str) -> None:
        """Raise SessionDamaged if no session of this id can begin because something else is in its folder."""
        folder = self.root / session
        if not folder.is_symlink() and (not folder.exists() or log_facts(folder) is not None):
            return  # `create` reports a session that exists already
        if folder.is_symlink() or not folder.is_dir() or os.path.lexists(folder / EVENTS):
            raise SessionDamaged(
                f"{folder.name} is no session: something else is at {folder}", fix="take another id, or move it away"
            )

    def require_lock(self, session: str) -> None:
        """Raise SessionDamaged if the session's lock is not a file."""
        lock = self.root / session / LOCK
        if os.path.lexists(lock) and (lock.is_symlink() or not lock.is_file()):
            raise SessionDamaged(f"the lock of session {session} is not a file", fix=f"move it away: {lock}")

    # --- names ----------------------------------------------------------------------------------------------------

    def sessions(self) -> Sequence[str]:
        """Return the ids in order: that of our own ids is the one in which the sessions were created."""
        return sorted(entry.name for entry in self._entries())

    def count(self) -> int:
        """Count the sessions by their folders' names alone."""
        try:
            return sum(map(is_session_id, os.listdir(self.root)))
        except OSError:
            return 0

    def latest(self) -> str | None:
        newest, found = -1, None
        for entry in self._entries():
            written = os.stat(os.path.join(entry.path, EVENTS)).st_mtime_ns
            if written > newest:
                newest, found = written, entry.name
        return found

    def resolve(self, prefix: str) -> str:
        """Return the session that `prefix` names: an id, the unique beginning of one, or "last".

        Raises SessionNotFound: it names none or several; the message lists candidates.
        """
        if self.exists(prefix):
            return prefix
        from lmagent.store.names import resolve_name  # most callers give a whole id, or none

        return resolve_name(prefix, self.sessions(), self.latest, self.root)

    def _entries(self) -> Iterator[os.DirEntry[str]]:
        try:
            entries = os.scandir(self.root)
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            raise store_error(error, "the sessions could not be listed", self.root) from error
        with entries:
            for entry in entries:
                if (
                    is_session_id(entry.name)
                    and entry.is_dir(follow_symlinks=False)
                    and log_facts(entry.path) is not None
                ):
                    yield entry

    def _folder(self, session: str) -> Path:
        if not is_session_id(session):
            raise StoreError(
                f"{session!r} cannot be the id of a session",
                fix=SESSION_RULE,
            )
        return self.root / session

    def _known(self, session: str) -> Path:
        if not self.exists(session):
            raise SessionNotFound(f"there is no session {session}", terminal="lmagent sessions list")
        return self.root / session


def _events(path: Path, after: int) -> Iterator[DurableEvent]:
    try:
        with path.open("rb") as stream:
            for line in in_order(lines(stream)):
                if line.event is not None and line.whole and line.seq > after:
                    yield line.event
    except OSError as error:
        raise store_error(error, f"session {path.parent.name} could not be read", path) from error
