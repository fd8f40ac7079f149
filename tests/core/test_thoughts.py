"""Which models get their own thoughts back."""

import pytest

from lmagent.core.model import keeps_thoughts


@pytest.mark.parametrize(
    "model",
    [
        "gpt-oss:20b",
        "openai/gpt-oss-120b",
        "MiniMax-M2.1",
        "kimi-k2-thinking",
        "moonshotai/Kimi_K2_Thinking",
        "glm-4.5-air",
        "GLM-4.7",
        "deepseek-v3.2",
    ],
)
def test_models_that_think_between_calls_do(model):
    assert keeps_thoughts(model)


@pytest.mark.parametrize(
    "model",
    [
        "",
        "qwen3:8b",
        "QwQ-32B",
        "deepseek-r1",
        "deepseek-v3.1",
        "kimi-k2-instruct",
        "glm-4-9b",
        "llama-3.3-70b",
        "minimax-m1",
    ],
)
def test_models_that_were_trained_without_them_do_not(model):
    assert not keeps_thoughts(model)
