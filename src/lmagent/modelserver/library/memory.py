"""Memory: an upper bound of the bytes that a model takes.

    needed = weights + cache + states + compute buffer + engine
    cache  = slots * context * sum over layers of kv_heads * (key_length * K + value_length * V)
    buffer = 4 * batch * (vocabulary + 8 * width + 3 * inner width) + 6 * batch * tokens
             and without flash attention 4 * batch * tokens * heads besides

K and V are the bytes of a cached number (f16: 2), `batch` is 512 tokens, the engine's default. Layers with a sliding
window are counted in full, and so is the file, although the system maps only its used pages. The real amount is
measured once the worker runs.
"""

from __future__ import annotations

from collections.abc import Sequence

from lmagent.modelserver.library.facts import GgufFacts
from lmagent.modelserver.library.quant import CACHE_BYTES
from lmagent.modelserver.spec import DEFAULT_CONTEXT, ModelSettings

BATCH = 512  # tokens that are computed at once (llama.cpp's `n_ubatch`)
ENGINE_BYTES = 64 << 20  # bytes of a worker with a tiny model: 33 to 41 MB measured, and room for its threads
RESERVE = 0.1  # share of the free memory that is left alone
GPU_RESERVE = 512 << 20  # bytes of a graphics card that are left for its driver and the screen


def context_of(facts: GgufFacts, settings: ModelSettings) -> int:
    return settings.context or min(facts.context or DEFAULT_CONTEXT, DEFAULT_CONTEXT)


def cache_bytes(facts: GgufFacts, settings: ModelSettings) -> int:
    return sum(_layer_cache(facts, settings)) + facts.state * settings.parallel


def compute_bytes(facts: GgufFacts, settings: ModelSettings) -> int:
    context = context_of(facts, settings)
    tokens, batch = context * settings.parallel, min(BATCH, context)
    size = 4 * batch * (facts.vocabulary + 8 * facts.embedding + 3 * facts.feed_forward) + 6 * batch * tokens
    return size if settings.flash_attention != "off" else size + 4 * batch * tokens * facts.heads


def needed_bytes(facts: GgufFacts, settings: ModelSettings) -> int:
    weights = facts.weights or facts.size
    return weights + cache_bytes(facts, settings) + compute_bytes(facts, settings) + ENGINE_BYTES


def usable(free: int) -> int:
    return int(free * (1 - RESERVE))


def estimate_gpu_layers(facts: GgufFacts, settings: ModelSettings, free: Sequence[int]) -> int:
    """Return how many layers fit on graphics cards, counted from the last one as the engine does.

    Each card has to hold the compute buffer besides; the output layer comes after the model's layers, so one more than
    their number means all of it.
    """
    buffer = compute_bytes(facts, settings) + GPU_RESERVE
    rooms = [room - buffer for room in free if room > buffer]
    caches = _layer_cache(facts, settings)
    state = facts.state * settings.parallel // max(facts.layers, 1)
    sizes = [size + cache + state for size, cache in zip(facts.layer_sizes, caches, strict=True)]
    rest = max(facts.weights - sum(facts.layer_sizes), 0)
    fitting = 0
    for size in [*reversed(sizes), rest]:
        while rooms and rooms[0] < size:
            rooms.pop(0)
        if not rooms:
            break
        rooms[0] -= size
        fitting += 1
    return fitting


def _layer_cache(facts: GgufFacts, settings: ModelSettings) -> list[int]:
    tokens = context_of(facts, settings) * settings.parallel
    head = facts.key_length * CACHE_BYTES[settings.cache_type_k]
    head += facts.value_length * CACHE_BYTES[settings.cache_type_v]
    heads = facts.kv_heads[: facts.layers] + (0,) * (facts.layers - len(facts.kv_heads))
    return [int(tokens * count * head) for count in heads]
