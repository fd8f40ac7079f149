"""Port: the sessions of a workspace, as far as jobs need them. The program's runner of sessions has them."""

from __future__ import annotations

from collections.abc import Callable, Container
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Protocol

from lmagent.config.settings import Settings
from lmagent.core.errors import LmagentError
from lmagent.core.ids import InputOrigin
from lmagent.core.ports import Clock, Dispatcher, DispatchJob
from lmagent.core.sandbox import Sandbox
from lmagent.engine.session import Session
from lmagent.providers.transport import Transport
from lmagent.store.port import SessionStore


class JobHost(Protocol):
    workspace: Path
    store: SessionStore
    settings: Settings
    clock: Clock
    transport: Transport
    sessions: dict[str, Session]

    async def sandbox(self) -> Sandbox: ...

    def dispatcher(
        self, given_up: Callable[[DispatchJob, LmagentError], None], say: Callable[[str], None]
    ) -> Dispatcher:
        """Return the queue of the workspace's jobs; `given_up` is called with a job that rests, and the reason."""
        ...


class JobSession(Protocol):
    session: Session

    async def run_job(self, origin: InputOrigin, *, is_open: bool, patient_until: float) -> None:
        """Run the turn of a job whose input is in the log to its end; `is_open` if an earlier process began it.

        The turn waits for a model server until `patient_until`, Unix seconds. Raise Postponed if the session was closed
        before the turn ended.
        """
        ...


class Sessions(Protocol):
    @property
    def host(self) -> JobHost: ...

    @property
    def sessions(self) -> Container[str]:
        """The sessions that these jobs share with a user, by id."""
        ...

    def running(self) -> AbstractAsyncContextManager[None]:
        """Run sessions within this context."""
        ...

    def for_job(self, session: str) -> AbstractAsyncContextManager[JobSession]:
        """Open a session, or begin it, and release it afterwards. Raise SessionBusy if another process has it open."""
        ...

    def say(self, text: str, /) -> None: ...

    def unexpected(self, defect: Exception) -> LmagentError:
        """Log an error that no caller foresaw; return it for the user."""
        ...
