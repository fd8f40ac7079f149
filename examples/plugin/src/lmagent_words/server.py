"""A kind of model server: Wordy speaks the common API, and lists its window as `max_words`, of 4 tokens each."""

from __future__ import annotations

from lmagent.providers.dialects.ask import Ask
from lmagent.providers.dialects.base import Dialect, ModelFacts, Seen, ServerFacts, chosen
from lmagent.providers.dialects.fields import number, text


class Wordy(Dialect):
    def claims(self, seen: Seen) -> bool:
        return seen.owner() == "wordy"

    async def read(self, seen: Seen, ask: Ask, model: str) -> ServerFacts:
        models = tuple(
            ModelFacts(id=text(entry, "id"), loaded=True, served=4 * (number(entry, "max_words") or 0) or None)
            for entry in seen.listed
        )
        return self.facts(models, chosen(models, model))
