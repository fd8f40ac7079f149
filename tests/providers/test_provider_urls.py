import pytest

from lmagent.core.errors import ConfigError
from lmagent.providers.urls import api_root, chat_url, is_loopback, proxy_for, server_root


@pytest.mark.parametrize(
    ("given", "chat", "root"),
    [
        ("http://h:1234", "http://h:1234/v1/chat/completions", "http://h:1234"),
        ("http://h:1234/", "http://h:1234/v1/chat/completions", "http://h:1234"),
        ("http://h:1234/v1", "http://h:1234/v1/chat/completions", "http://h:1234"),
        ("http://h:1234/v1/", "http://h:1234/v1/chat/completions", "http://h:1234"),
        ("http://h:1234/v1/chat/completions", "http://h:1234/v1/chat/completions", "http://h:1234"),
        ("h:1234", "http://h:1234/v1/chat/completions", "http://h:1234"),
        ("https://openrouter.ai/api/v1", "https://openrouter.ai/api/v1/chat/completions", "https://openrouter.ai/api"),
        ("https://openrouter.ai/api", "https://openrouter.ai/api/v1/chat/completions", "https://openrouter.ai/api"),
        ("https://g/v1beta/openai", "https://g/v1beta/openai/chat/completions", "https://g"),
        ("https://z/api/v4", "https://z/api/v4/chat/completions", "https://z/api"),
        ("http://h/chat/completions", "http://h/chat/completions", "http://h"),
        ("http://[::1]:8080/v1", "http://[::1]:8080/v1/chat/completions", "http://[::1]:8080"),
        (
            "https://a/v1/chat/completions?api-version=2",
            "https://a/v1/chat/completions?api-version=2",
            "https://a",
        ),
    ],
)
def test_a_base_url_or_a_full_url_leads_to_the_chat_route(given: str, chat: str, root: str) -> None:
    assert chat_url(given) == chat
    assert server_root(given) == root


def test_the_list_of_models_lies_beside_the_chat_route() -> None:
    assert api_root("http://h:1234/v1/chat/completions?x=1") == "http://h:1234/v1"
    assert api_root("http://h:1234") == "http://h:1234/v1"


@pytest.mark.parametrize("given", ["", "ftp://h", "http://", "http://h:port/v1", "http://h h/v1"])
def test_what_is_no_url_is_refused_with_an_example(given: str) -> None:
    with pytest.raises(ConfigError, match="http://localhost:1234/v1"):
        chat_url(given)


@pytest.mark.parametrize(
    ("url", "local"),
    [
        ("http://localhost:1", True),
        ("http://127.0.0.1:1", True),
        ("http://[::1]:1", True),
        ("http://x.localhost", True),
        ("http://192.168.1.5", False),
        ("http://localhost.example", False),
    ],
)
def test_this_machine_is_recognised(url: str, local: bool) -> None:
    assert is_loopback(url) is local


ENV = {"HTTP_PROXY": "http://p:3128", "https_proxy": "q:3129", "NO_PROXY": "example.org,.corp, box:8080"}


@pytest.mark.parametrize(
    ("url", "proxy"),
    [
        ("http://far.test/v1", "http://p:3128"),
        ("https://far.test/v1", "http://q:3129"),
        ("http://127.0.0.1:1234/v1", None),
        ("http://localhost:1234/v1", None),
        ("http://example.org", None),
        ("http://a.example.org", None),
        ("http://notexample.org", "http://p:3128"),
        ("http://a.corp", None),
        ("http://box:8080", None),
        ("http://box:9090", "http://p:3128"),
    ],
)
def test_the_environment_chooses_the_proxy(url: str, proxy: str | None) -> None:
    assert proxy_for(url, ENV) == proxy


def test_a_star_excepts_everything_and_a_socks_proxy_is_refused() -> None:
    assert proxy_for("http://far.test", {**ENV, "NO_PROXY": "*"}) is None
    assert proxy_for("http://far.test", {"ALL_PROXY": "http://p:1"}) == "http://p:1"
    with pytest.raises(ConfigError, match="socks5"):
        proxy_for("http://far.test", {"ALL_PROXY": "socks5://p:1"})
