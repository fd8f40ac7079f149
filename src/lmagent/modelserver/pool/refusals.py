"""Refusals: errors of requests that the pool does not serve."""

from __future__ import annotations

from pathlib import Path

from lmagent.modelserver.engine.cause import SMALLER, Cause
from lmagent.modelserver.errors import BadRequest, Lost
from lmagent.modelserver.pool.health import CRASHES, WINDOW, Health
from lmagent.modelserver.spec import ModelEntry, ModelServerError


def broken(entry: ModelEntry) -> ModelServerError:
    text = f"{entry.name} cannot be loaded: {entry.broken}"
    return ModelServerError(text, status=422, code="model_broken", fix=f"lmagent models show {entry.name}")


def too_large(entry: ModelEntry, needed: int, budget: int) -> ModelServerError:
    slots = f" x {entry.settings.parallel} slots" if entry.settings.parallel > 1 else ""
    window = f" with a context of {entry.settings.context} tokens{slots}" if entry.settings.context else ""
    text = f"{entry.name} takes about {size(needed)} of memory{window}, and all models together may take {size(budget)}"
    fix = "choose a smaller context or a smaller quantisation, or give the model server more memory"
    return ModelServerError(text, status=507, code="out_of_memory", fix=fix)


def not_loaded(entry: ModelEntry, cause: Cause, log: Path, wait: float = 0.0) -> ModelServerError:
    again = f" (it is not tried again for {wait:.0f} s, unless by: lmagent models load {entry.name})" if wait else ""
    status = 507 if cause.code == "out_of_memory" else 500
    text = f"{entry.name} could not be loaded: {cause.text}{again}"
    return ModelServerError(text, status=status, code=cause.code, fix=cause.fix or f"look into its log: {log}")


def elsewhere(entry: ModelEntry) -> ModelServerError:
    text = f"{entry.name} is a model of another server, {entry.url}, which takes no options from here"
    return ModelServerError(text, status=400, code="model_elsewhere", fix="load it there with these options")


def no_embeddings(entry: ModelEntry) -> BadRequest:
    """Refuse before the engine does, whose message names an option that this server does not have."""
    text = f"{entry.name} is not loaded for embeddings"
    fix = f"name a model that is made for them, or write `embedding = true` into {entry.name}.toml beside the model"
    return BadRequest(text, param="model", code="no_embeddings", fix=fix)


def crashed(entry: ModelEntry, cause: Cause, log: Path) -> ModelServerError:
    text = f"the worker of {entry.name} ended while it was at work: {cause.text}"
    return Lost(text, status=502, code="worker_crashed", fix=cause.fix or f"ask again; its log: {log}")


def quarantined(entry: ModelEntry, health: Health, now: float) -> ModelServerError:
    why = f"; the last time: {health.cause.text}" if health.cause else ""
    left = health.quarantined_until - now
    text = f"{entry.name} crashed {CRASHES} times in {WINDOW / 60:.0f} minutes and is not started for {left:.0f} s{why}"
    fix = f"start it now: lmagent models load {entry.name}"
    if health.cause and health.cause.fix == SMALLER:
        fix = f"{SMALLER}; then {fix}"
    return ModelServerError(text, status=503, code="quarantined", fix=fix)


def closing() -> ModelServerError:
    return ModelServerError(
        "the model server is shutting down",
        status=503,
        code="shutting_down",
        fix="start it again: lmagent server start",
    )


def size(count: int) -> str:
    if count >= 1 << 30:
        return f"{count / (1 << 30):.1f} GiB"
    return f"{count / (1 << 20):.0f} MiB"
