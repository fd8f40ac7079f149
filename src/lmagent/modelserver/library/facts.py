"""Facts: the description of a model in the header of its file, read without loading it.

The keys are those of https://github.com/ggml-org/ggml/blob/master/docs/gguf.md and of llama.cpp's `llama-arch.cpp`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Literal, cast

from msgspec import Struct
from msgspec.structs import replace

from lmagent.modelserver.library.gguf import GgufHeader, broken, read_header
from lmagent.modelserver.library.quant import quant_of

Kind = Literal["chat", "embedding", "reranker", "projector", "adapter", "other"]

ENCODERS = frozenset(
    (
        *("bert", "modern-bert", "nomic-bert", "nomic-bert-moe", "neo-bert", "jina-bert-v2", "jina-bert-v3"),
        *("eurobert", "gemma-embedding", "llama-embed", "t5encoder"),
    )
)
"""Architectures that make embeddings and no text."""

POOLING = {0: "none", 1: "mean", 2: "cls", 3: "last", 4: "rank"}
"""`{arch}.pooling_type` (llama.h, `llama_pooling_type`)."""

_SPLIT = re.compile(r"-(\d{5})-of-(\d{5})(?=\.gguf$)", re.IGNORECASE)
_TOOLS = re.compile(r"\btools\b")
_THINKS = re.compile(
    r"<think>|enable_thinking|reasoning_content|reasoning_effort|\[THINK\]|<\|channel\|?>", re.IGNORECASE
)


class GgufFacts(Struct, frozen=True):
    """The facts in a GGUF file's header; 0 and "" if it does not have them."""

    path: Path  # the file; of a model in parts, the first
    kind: Kind = "chat"
    architecture: str = ""  # llama.cpp's name of it
    name: str = ""  # the model's own name
    parameters: int = 0  # numbers in all its tensors
    size: int = 0  # bytes on disk, all parts
    weights: int = 0  # bytes of the tensors
    quantisation: str = ""  # `Q4_K_M` and so on
    context: int = 0  # tokens of the window that it was made for
    layers: int = 0  # how many there are
    heads: int = 0  # attention heads of a layer, the most of any
    kv_heads: tuple[int, ...] = ()  # heads of keys and values, by layer; 0 where a layer caches nothing
    key_length: int = 0  # numbers of a head's key and value
    value_length: int = 0  # numbers of a head's key and value
    embedding: int = 0  # width
    feed_forward: int = 0  # inner width, the most of any layer
    vocabulary: int = 0  # tokens that it knows
    experts: int = 0  # of a mixture of experts
    state: int = 0  # bytes that a slot's recurrent state takes (Mamba, RWKV and their hybrids)
    tokenizer: str = ""  # kind of the tokenizer (`gpt2`, `llama`, `bert`, …)
    template: bool = False  # whether there is a chat template
    tools: bool = False  # whether the template renders tools
    thinks: bool = False  # whether the template knows thoughts
    pooling: str = ""  # how it pools embeddings
    parts: tuple[Path, ...] = ()  # all files of a model in parts; else the one
    layer_sizes: tuple[int, ...] = ()  # bytes of the tensors of each layer


def split_of(path: Path) -> tuple[str, int, int]:
    """Return the name without the part, the part's number and the count of parts; 1 and 1 for a single file."""
    found = _SPLIT.search(path.name)
    if found is None:
        return (path.name[:-5] if path.name.lower().endswith(".gguf") else path.name), 1, 1
    return path.name[: found.start()], int(found[1]), int(found[2])


def parts_of(path: Path) -> tuple[Path, ...]:
    """Return all files of a model, the first one first."""
    stem, _, count = split_of(path)
    if count < 2:
        return (path,)
    if count > 1000:
        raise broken(path, f"says that it is one of {count} parts", "check its name")
    there: dict[tuple[str, int], Path] = {}
    for file in path.parent.iterdir():
        name, number, of = split_of(file)
        if of == count:
            there[name.lower(), number] = file
    wanted = [(stem.lower(), number) for number in range(1, count + 1)]
    if missing := [f"{number:05}" for name, number in wanted if (name, number) not in there]:
        fix = "fetch the missing parts into the same folder: lmagent models pull OWNER/REPO takes them all"
        raise broken(path, f"is one of {count} parts, and part {', '.join(missing[:8])} is not there", fix)
    return tuple(there[part] for part in wanted)


def read_facts(path: Path) -> GgufFacts:
    """Read the header of a model file, or those of all its parts."""
    try:
        parts = parts_of(path)
    except OSError as error:
        raise broken(path, f"cannot be read: {error.strerror or error}", "check the folder's permissions") from None
    facts, header = _facts(parts[0])
    layers, weights = Counter(header.layers), Counter(header.weights)
    for number, part in enumerate(parts[1:], 1):
        more = read_header(part)
        if more.values.get("split.no", number) != number:
            raise broken(part, "is another part than its name says", "fetch the model again")
        layers.update(more.layers)
        weights.update(more.weights)
        parameters, size = facts.parameters + more.parameters, facts.size + more.size
        facts = replace(facts, parameters=parameters, size=size, weights=facts.weights + more.data)
    announced = header.values.get("split.count", 0)
    if isinstance(announced, int) and announced > 1 and len(parts) != announced:
        raise broken(path, f"is the first of {announced} parts, but its name says so of {len(parts)}", "rename it back")
    sizes = tuple(layers[index] for index in range(max(facts.layers, 0)))
    return replace(
        facts, parts=parts, layer_sizes=sizes, quantisation=quant_of(header.values.get("general.file_type"), weights)
    )


def _facts(path: Path) -> tuple[GgufFacts, GgufHeader]:
    header = read_header(path)
    architecture = _text(header, "general.architecture")
    if not architecture:
        raise broken(path, "does not say what architecture it has", "fetch it again from another repository")

    def number(key: str) -> int:
        return _whole(header.values.get(f"{architecture}.{key}"))

    def numbers(key: str) -> tuple[int, ...]:
        """Return one number for each layer; a single one counts for all."""
        value = header.values.get(f"{architecture}.{key}", ())
        items = tuple(map(_whole, value)) if isinstance(value, tuple) else (_whole(value),)
        return items + items[-1:] * (layers - len(items))

    layers = min(number("block_count"), 4096)
    heads = numbers("attention.head_count")
    embedding = number("embedding_length")
    width = embedding // max(heads) if heads and max(heads) else 0
    template = _text(header, "tokenizer.chat_template")
    facts = GgufFacts(
        path=path,
        architecture=architecture,
        name=_text(header, "general.name"),
        parameters=header.parameters,
        size=header.size,
        weights=header.data,
        context=number("context_length"),
        layers=layers,
        heads=max(heads, default=0),
        kv_heads=numbers("attention.head_count_kv") or heads,
        key_length=max(number("attention.key_length") or width, number("attention.key_length_swa")),
        value_length=max(number("attention.value_length") or width, number("attention.value_length_swa")),
        embedding=embedding,
        feed_forward=max(numbers("feed_forward_length"), default=0),
        vocabulary=header.lengths.get("tokenizer.ggml.tokens", 0) or number("vocab_size"),
        experts=number("expert_count"),
        state=_state(number, layers, embedding),
        tokenizer=_text(header, "tokenizer.ggml.model"),
        template=bool(template),
        tools=bool(_TOOLS.search(template)),
        thinks=bool(_THINKS.search(template)),
        pooling=POOLING.get(number("pooling_type"), "") if f"{architecture}.pooling_type" in header.values else "",
    )
    return replace(facts, kind=_kind(facts, header)), header


def _kind(facts: GgufFacts, header: GgufHeader) -> Kind:
    general = _text(header, "general.type")
    if general == "adapter" or "adapter.type" in header.values:
        return "adapter"
    if general == "mmproj" or facts.architecture == "clip" or "clip.projector_type" in header.values:
        return "projector"
    if facts.pooling == "rank":
        return "reranker"
    if facts.architecture in ENCODERS or facts.pooling in ("mean", "cls", "last"):
        return "embedding"
    if general not in ("", "model") or not facts.vocabulary or not facts.layers:
        return "other"
    if not header.tensors and split_of(facts.path)[2] < 2:
        return "other"  # a vocabulary alone, as llama.cpp's own tests have them
    return "chat"


def _state(number: Callable[[str], int], layers: int, embedding: int) -> int:
    """Return bytes of one slot's recurrent state, counted for all layers: too much for a hybrid, never too little.

    Mamba keeps `inner * state` numbers and a convolution of `(kernel - 1) * (inner + 2 * groups * state)`, RWKV
    `head * width` and two rows (llama.cpp, `n_embd_r` and `n_embd_s`); each of 4 bytes.
    """
    inner, state = number("ssm.inner_size"), number("ssm.state_size")
    kernel, groups = number("ssm.conv_kernel"), number("ssm.group_count")
    mamba = inner * state + max(kernel - 1, 0) * (inner + 2 * groups * state)
    rwkv = number("wkv.head_size")
    return 4 * layers * (mamba + (rwkv * embedding + 2 * embedding if rwkv else 0))


def _whole(value: object) -> int:
    if isinstance(value, tuple):
        return max((_whole(item) for item in cast("tuple[object, ...]", value)), default=0)
    if not isinstance(value, int) or isinstance(value, bool):
        return 0
    return min(max(value, 0), 1 << 40)


def _text(header: GgufHeader, key: str) -> str:
    value = header.values.get(key)
    return value if isinstance(value, str) else ""
