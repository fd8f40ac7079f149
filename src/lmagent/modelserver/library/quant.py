"""Quantisation: the types of numbers in a GGUF file, and their usual names.

Source of the figures: `ggml_type`, `type_traits` and `llama_ftype` of llama.cpp (ggml.h, ggml.c, llama.h), as the
package `gguf` lists them too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_TYPES = """
    0:F32:1:4 1:F16:1:2 2:Q4_0:32:18 3:Q4_1:32:20 6:Q5_0:32:22 7:Q5_1:32:24 8:Q8_0:32:34 9:Q8_1:32:40 10:Q2_K:256:84
    11:Q3_K:256:110 12:Q4_K:256:144 13:Q5_K:256:176 14:Q6_K:256:210 15:Q8_K:256:292 16:IQ2_XXS:256:66
    17:IQ2_XS:256:74 18:IQ3_XXS:256:98 19:IQ1_S:256:50 20:IQ4_NL:32:18 21:IQ3_S:256:110 22:IQ2_S:256:82
    23:IQ4_XS:256:136 24:I8:1:1 25:I16:1:2 26:I32:1:4 27:I64:1:8 28:F64:1:8 29:IQ1_M:256:56 30:BF16:1:2
    34:TQ1_0:256:54 35:TQ2_0:256:66 39:MXFP4:32:17 40:NVFP4:64:36 41:Q1_0:128:18
"""
TYPES = {
    int(number): (name, int(count), int(size))
    for number, name, count, size in (row.split(":") for row in _TYPES.split())
}
"""Name, numbers in a block and bytes of a block, by the number of the type."""

_FILE_TYPES = """
    0:F32 1:F16 2:Q4_0 3:Q4_1 7:Q8_0 8:Q5_0 9:Q5_1 10:Q2_K 11:Q3_K_S 12:Q3_K_M 13:Q3_K_L 14:Q4_K_S 15:Q4_K_M
    16:Q5_K_S 17:Q5_K_M 18:Q6_K 19:IQ2_XXS 20:IQ2_XS 21:Q2_K_S 22:IQ3_XS 23:IQ3_XXS 24:IQ1_S 25:IQ4_NL 26:IQ3_S
    27:IQ3_M 28:IQ2_S 29:IQ2_M 30:IQ4_XS 31:IQ1_M 32:BF16 36:TQ1_0 37:TQ2_0 38:MXFP4 39:NVFP4 40:Q1_0
"""
FILE_TYPES = {int(number): name for number, name in (row.split(":") for row in _FILE_TYPES.split())}
"""`general.file_type`, by number."""

CACHE_BYTES = {name.lower(): size / count for name, count, size in TYPES.values()}
"""Bytes of one number in the cache of keys and values."""

PREFERENCE = (
    *("Q4_K_M", "Q4_K_XL", "MXFP4", "MXFP4_MOE", "Q4_K_S", "Q5_K_M", "Q4_K_L", "IQ4_XS", "IQ4_NL", "Q4_0", "Q5_K_S"),
    *("Q4_1", "Q5_0", "Q5_1", "Q6_K", "Q8_0", "Q3_K_L", "Q3_K_M", "IQ3_M", "Q3_K_S", "IQ3_XS", "IQ3_XXS", "Q2_K"),
    *("IQ2_M", "IQ2_XS", "IQ2_XXS", "BF16", "F16", "F32"),
)
"""The order of choice: four bits with little loss first, then the nearest and small ones."""

_IN_NAME = re.compile(
    r"(?:^|[-_.])((?:I?Q[1-8]_(?:K_(?:XXL|XL|[SML])|XXS|XS|NL|[KSM01])|TQ[12]_0|BF16|F16|F32|FP16|FP32"
    r"|MXFP4(?:_MOE)?|NVFP4))(?=[-_.]|$)",
    re.IGNORECASE,
)
_RENAMED = {"FP16": "F16", "FP32": "F32"}


def quant_in(name: str) -> str:
    """Return the quantisation in a file's name (`Q4_K_M` in `Qwen3-8B-Q4_K_M.gguf`); "" if it has none."""
    found = _IN_NAME.findall(name)
    label = found[-1].upper() if found else ""
    return _RENAMED.get(label, label)


def quant_of(file_type: object, weights: Mapping[str, int]) -> str:
    """Return the quantisation of a file from `general.file_type` and its numbers by type."""
    number = file_type & ~1024 if isinstance(file_type, int) and not isinstance(file_type, bool) else -1
    leading = max(weights, key=lambda name: weights[name]) if weights else ""
    named = FILE_TYPES.get(number, "")
    if named in ("F32", "F16") and leading and leading not in ("F32", "F16", "BF16"):
        return leading  # the writer left the default: the type of most numbers counts
    return named or leading
