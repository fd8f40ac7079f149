"""Proxy: which proxy, if any, the environment wants for a URL."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from lmagent.core.errors import ConfigError
from lmagent.providers.urls import is_loopback


def proxy_for(url: str, env: Mapping[str, str]) -> str | None:
    """The proxy's URL from `HTTP_PROXY`, `HTTPS_PROXY`, `ALL_PROXY` and `NO_PROXY` (either case), or None.

    A server on this machine is never reached through a proxy.

    Raises:
        ConfigError: the proxy is not an HTTP proxy.
    """
    parts = urlsplit(url)
    if is_loopback(url) or _excepted(parts.hostname or "", parts.port, _get(env, "no_proxy")):
        return None
    proxy = _get(env, f"{parts.scheme}_proxy") or _get(env, "all_proxy")
    if not proxy:
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


def _excepted(host: str, port: int | None, rules: str) -> bool:
    """`NO_PROXY`: a comma list of `*`, hosts, domains (with or without a leading dot), each with an optional port."""
    host = host.lower()
    for rule in rules.lower().replace(" ", ",").split(","):
        name, _, rule_port = rule.partition(":") if rule.count(":") == 1 else (rule, "", "")
        name = name.strip("[]").removeprefix("*").lstrip(".")
        if rule == "*":
            return True
        if name and (host == name or host.endswith(f".{name}")) and rule_port in ("", str(port)):
            return True
    return False
