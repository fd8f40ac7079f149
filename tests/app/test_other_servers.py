from __future__ import annotations

import pytest

from lmagent.app.servers.table import endpoint_of, usable
from lmagent.config.settings import OPENROUTER_URL, Settings
from lmagent.core.errors import AuthError
from lmagent.core.model import split_name


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("openrouter:anthropic/claude-x", ("openrouter", "anthropic/claude-x")),
        ("ollama:qwen3:8b", ("ollama", "qwen3:8b")),
        ("qwen3:8b", ("", "qwen3:8b")),
        ("openrouter/auto", ("", "openrouter/auto")),
        ("", ("", "")),
    ],
)
def test_only_a_known_provider_before_a_colon_is_one(name: str, split: tuple[str, str]) -> None:
    assert split_name(name) == split


def test_openrouter_is_reached_with_its_own_key_or_not_at_all() -> None:
    settings = Settings(llm_url="http://10.0.0.5:1234/v1", llm_api_key="sk-local")
    with pytest.raises(AuthError) as caught:
        endpoint_of(settings, "openrouter")
    assert "OPENROUTER_API_KEY" in caught.value.fix
    assert "openrouter" not in usable(settings)
    keyed = Settings(llm_url="http://10.0.0.5:1234/v1", llm_api_key="sk-local", openrouter_api_key="sk-or")
    found = endpoint_of(keyed, "openrouter")
    assert (found.url, found.key) == (OPENROUTER_URL, "sk-or")


def test_the_key_of_the_usual_server_goes_to_no_other_one() -> None:
    settings = Settings(llm_url="http://localhost:8000/v1", llm_api_key="sk-vllm")
    assert endpoint_of(settings, "vllm", {}).key == "sk-vllm"
    assert endpoint_of(settings, "ollama", {}).key == ""
    assert endpoint_of(settings, "ollama", {"OLLAMA_HOST": "10.0.0.9:11434"}).url == "http://10.0.0.9:11434/v1"
