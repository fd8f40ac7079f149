"""Client: what a request of a client can do besides being answered. `protocol.py` implements it on the SDK."""

from __future__ import annotations

from typing import Any, Protocol


class Client(Protocol):
    """The client of one request.

    Attributes:
        can_ask: whether its user can be asked.
    """

    can_ask: bool

    async def ask(self, message: str, schema: dict[str, Any]) -> dict[str, Any] | None:
        """Show a form to the client's user; return the filled form, or None if the user declines.

        Raises NoAnswer: the client could not ask.
        """
        ...

    async def progress(self, text: str) -> None:
        """Send a piece of progress, if the client wants any."""
        ...


class NoAnswer(Exception):
    """The client could not ask its user."""
