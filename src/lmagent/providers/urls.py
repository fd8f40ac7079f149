"""URLs: the chat endpoint for the user's `LLM_URL`, and its proxy."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import SplitResult, urlsplit, urlunsplit

from lmagent.core.errors import ConfigError

_CHAT = "/chat/completions"
_IPV4_LOOPBACK = re.compile(r"127(\.\d{1,3}){3}")
_VERSION = re.compile(r"/v\d[^/]*(/|$)")


def chat_url(url: str) -> str:
    """Return the full chat URL for a base URL (`http://h:1234`, `http://h:1234/v1`) or a full chat URL."""
    parts = _split(url)
    path = parts.path.rstrip("/")
    if not path.endswith(_CHAT):
        path = _versioned(path) + _CHAT
    return urlunsplit(parts._replace(path=path, fragment=""))


def api_root(url: str) -> str:
    """Return the API's root (`http://h:1234/v1`), to which `/models` is appended, without query and final slash."""
    parts = _split(url)
    path = _versioned(parts.path.rstrip("/").removesuffix(_CHAT))
    return urlunsplit(parts._replace(path=path, query="", fragment=""))


def server_root(url: str) -> str:
    """Return the server's root (`http://h:1234`), under which its own routes lie (`/props`, `/api/ps`)."""
    parts = _split(url)
    path = _VERSION.split(parts.path.rstrip("/").removesuffix(_CHAT), maxsplit=1)[0].rstrip("/")
    return urlunsplit(parts._replace(path=path, query="", fragment=""))


def authority(url: str) -> str:
    """Return host and port as in the URL, without a user or password (RFC 3986, section 3.2)."""
    return urlsplit(url).netloc.rpartition("@")[2]


def is_near(url: str) -> bool:
    """Return whether a server is on this machine or a private network: asking it costs nothing and leaks nothing."""
    host = (urlsplit(url).hostname or "").rstrip(".").lower()
    if is_loopback(url) or host.endswith((".local", ".lan", ".internal", ".home.arpa")):
        return True
    import ipaddress  # only servers on a network need it

    try:
        return ipaddress.ip_address(host).is_private
    except ValueError:
        return "." not in host  # a bare name is in this network


def is_loopback(url: str) -> bool:
    """Return whether the URL's host is this machine; a name like an address (`127.example.org`) is not."""
    host = (urlsplit(url).hostname or "").rstrip(".").lower()
    return host in ("localhost", "::1") or host.endswith(".localhost") or _IPV4_LOOPBACK.fullmatch(host) is not None


def _versioned(path: str) -> str:
    """Return a path with the usual version segment if it has none; `/api` is OpenRouter's and gets it too."""
    return path if _VERSION.search(path) else f"{path}/v1"


def _split(url: str) -> SplitResult:
    text = url.strip()
    if "://" not in text:
        text = f"http://{text}"
    try:
        parts = urlsplit(text)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        usable, parts = False, SplitResult("", "", "", "", "")
    if not usable or any(char.isspace() for char in text):
        raise ConfigError(
            f"{url!r} is not the URL of a model server",
            fix="give one like http://localhost:1234/v1",
            terminal="set LLM_URL to something like http://localhost:1234/v1",
        )
    return parts


def proxy_for(url: str, env: Mapping[str, str]) -> str | None:
    """Return the proxy's URL from `HTTP_PROXY`, `HTTPS_PROXY`, `ALL_PROXY` and `NO_PROXY` (either case), or None.

    A server on this machine is never reached through a proxy. Raise ConfigError if the proxy is not an HTTP proxy.
    """
    parts = urlsplit(url)
    proxy = _get(env, f"{parts.scheme}_proxy") or _get(env, "all_proxy")
    if not proxy or is_loopback(url):
        return None
    import urllib.request  # few machines have a proxy

    bypass: Any = urllib.request.proxy_bypass_environment  # type: ignore[attr-defined]  # typeshed does not know it
    if bypass(authority(url), {"no": _get(env, "no_proxy")}):
        return None
    if "://" not in proxy:
        proxy = f"http://{proxy}"
    scheme = urlsplit(proxy).scheme
    if scheme not in ("http", "https"):
        raise ConfigError(
            f"the proxy for {parts.hostname} is a {scheme} proxy; only HTTP proxies are supported",
            terminal=f"set {parts.scheme.upper()}_PROXY to an http:// proxy, or NO_PROXY={parts.hostname}",
        )
    return proxy


def _get(env: Mapping[str, str], name: str) -> str:
    return (env.get(name) or env.get(name.upper()) or "").strip()
