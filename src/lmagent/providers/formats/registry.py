"""All formats, in the order in which they are asked where several have the same opener."""

from lmagent.providers.formats import (
    apertus,
    bare,
    claude,
    deepseek,
    functionary,
    gemma,
    glm,
    harmony,
    hermes,
    internlm,
    kimi,
    lfm2,
    llama,
    mistral,
    qwen_coder,
    react,
    tagged,
    tooltag,
)
from lmagent.providers.formats.base import Format

MODULES = (
    hermes,
    qwen_coder,
    glm,
    tagged,
    mistral,
    deepseek,
    kimi,
    harmony,
    claude,
    functionary,
    gemma,
    internlm,
    lfm2,
    apertus,
    llama,
    tooltag,
    react,
    bare,
)
FORMATS: tuple[Format, ...] = tuple(format for module in MODULES for format in module.FORMATS)
