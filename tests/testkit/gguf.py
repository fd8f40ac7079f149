"""A tiny model file with random weights, for tests on the real llama.cpp engine.

Its output is noise, unless a grammar or a JSON schema constrains it (`testkit.forced`). All the rest is real:
the tokenizer, the chat template, the prompt cache, the window, the stream, the counts. Needs the packages `gguf` and
`numpy`. The format is GGUF version 3 as the `gguf` package writes it; tensor and key names are those of llama.cpp's
`llama` architecture.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

LAYERS = 2
WIDTH = 64
HEADS = 4
HIDDEN = 160

_CONTROL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_MERGED = """th he in er an re on at en nd or es is st it te al ar ti se le ng me de to ro co ra us pa ve el fo
 self def the and ing ion ent ret urn return import from str int None class file path text content
 read write name list true false ' ": {" "} ", ["" \": \", \":\" \",\" == -> __ ** // -- ## .. () [] {} ,"""

TEMPLATE = """\
{%- if offered %}<|im_start|>tools
{{ offered | tojson }}<|im_end|>
{% endif %}
{%- for message in messages %}<|im_start|>{{ message.role }}
{% if message.content %}{{ message.content }}{% endif %}
{%- if message.tool_calls %}{% for call in message.tool_calls %}
<tool_call>{{ call.function | tojson }}</tool_call>{% endfor %}{% endif %}<|im_end|>
{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
"""ChatML; calls and results are rendered, and the tools that a request names as `chat_template_kwargs.offered`."""


def build_tiny_gguf(path: Path, *, seed: int = 0, context: int = 131_072) -> Path:
    """Write a llama of about 0.4 MB: 2 layers of width 64, printable ASCII as vocabulary, ChatML.

    Raises ImportError if the package `gguf` is missing.

    Args:
        path: the file to write.
        seed: of the random weights.
        context: the window that the model claims to have been trained for, in tokens.

    Returns:
        The path.
    """
    import gguf

    tokens, merges = vocabulary()
    writer: Any = gguf.GGUFWriter(str(path), "llama")
    writer.add_name("tiny random test model")
    writer.add_context_length(context)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(HIDDEN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_file_type(0)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types([3 if token in _CONTROL else 1 for token in tokens])
    writer.add_token_merges(merges)
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(tokens.index("<|im_end|>"))
    writer.add_pad_token_id(0)
    writer.add_add_bos_token(False)
    writer.add_chat_template(TEMPLATE)
    for name, tensor in _tensors(len(tokens), seed):
        writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def vocabulary() -> tuple[list[str], list[str]]:
    """Return tokens and merges of a byte-level tokenizer that knows printable ASCII, tab and line feed.

    With nothing but ASCII in it, no sampled text can be broken UTF-8. The merges only shorten prompts: without them
    every character would be a token.
    """
    letters = [_shown(character) for character in ("\t", "\n", *map(chr, range(32, 127)))]
    tokens: dict[str, None] = dict.fromkeys([*_CONTROL, *letters])
    merges: dict[str, None] = {}
    words = [*_MERGED.split(), *(" " * length for length in (2, 4, 8)), "\n\n", "\n    "]
    words += [f" {word}" for word in _MERGED.split() if word.isalpha()]
    for word in words:
        left = _shown(word[0])
        for character in word[1:]:  # a chain of merges from the left, so that each part is a token
            right = _shown(character)
            merges.setdefault(f"{left} {right}")
            left += right
            tokens.setdefault(left)
    return list(tokens), list(merges)


def _shown(text: str) -> str:
    """Convert text to the form of byte-level tokenizers: blank, tab and line feed become visible characters."""
    return text.replace(" ", "\u0120").replace("\t", "\u0109").replace("\n", "\u010a")


def _tensors(vocabulary_size: int, seed: int) -> list[tuple[str, Any]]:
    import numpy

    random: Any = numpy.random.default_rng(seed)

    def noise(*shape: int) -> Any:
        return (random.standard_normal(shape) * 0.05).astype(numpy.float32)

    ones: Any = numpy.ones(WIDTH, dtype=numpy.float32)
    tensors = [
        ("token_embd.weight", noise(vocabulary_size, WIDTH)),
        ("output_norm.weight", ones),
        ("output.weight", noise(vocabulary_size, WIDTH)),
    ]
    for layer in range(LAYERS):
        shapes = {f"attn_{part}": (WIDTH, WIDTH) for part in ("q", "k", "v", "output")}
        shapes |= {"ffn_gate": (HIDDEN, WIDTH), "ffn_up": (HIDDEN, WIDTH), "ffn_down": (WIDTH, HIDDEN)}
        tensors += [(f"blk.{layer}.{part}_norm.weight", ones) for part in ("attn", "ffn")]
        tensors += [(f"blk.{layer}.{part}.weight", noise(*shape)) for part, shape in shapes.items()]
    return tensors
