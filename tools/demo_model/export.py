"""The trained network as a GGUF file, matrices in float16, norms in float32."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy

from .network import Network, interleaved
from .tokenizer import CONTROL, FIXED, Tokenizer

CONTEXT = 32_768
"""The window that the file names. A prompt comes to some 200 tokens; the agent plans with what is named here."""


def write_gguf(path: Path, network: Network, tokenizer: Tokenizer) -> None:
    """Write the file."""
    shape = network.shape
    writer: Any = gguf.GGUFWriter(str(path), "llama")
    writer.add_name("lmagent demo")
    writer.add_description("A tiny model for a handful of file chores; trained by tools/train_demo_model.py.")
    writer.add_license("MIT")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(shape.width)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.hidden)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.heads)
    writer.add_rope_dimension_count(shape.width // shape.heads)
    writer.add_rope_freq_base(shape.rope_base)
    writer.add_layer_norm_rms_eps(shape.epsilon)
    writer.add_file_type(int(gguf.LlamaFileType.MOSTLY_F16))
    _vocabulary(writer, tokenizer)
    for name, weight in network.state_dict().items():
        turned = name.endswith(("attn_q.weight", "attn_k.weight"))
        values: Any = (interleaved(weight, shape.heads) if turned else weight).numpy()
        writer.add_tensor(name, values if values.ndim == 1 else values.astype(numpy.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _vocabulary(writer: Any, tokenizer: Tokenizer) -> None:
    end = tokenizer.tokens.index("<|end|>")
    pad = tokenizer.tokens.index("<|pad|>")
    writer.add_vocab_size(len(tokenizer.tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(tokenizer.tokens)
    writer.add_token_types([3 if token in CONTROL else 4 if token in FIXED else 1 for token in tokenizer.tokens])
    writer.add_token_merges(tokenizer.merges)
    writer.add_bos_token_id(pad)
    writer.add_eos_token_id(end)
    writer.add_pad_token_id(pad)
    writer.add_add_bos_token(False)
    writer.add_chat_template((Path(__file__).parent / "template.jinja").read_text().replace("\n", ""))
