"""Web fields: the settings of `lmagent web`, by the names that earlier agents gave them."""

from __future__ import annotations

from lmagent.config.field import Field

WEB_FIELDS: tuple[Field, ...] = (
    Field(
        "web_host",
        "text",
        "The address that `lmagent web` listens on. One that others reach is taken with `--lan` only.",
        "AGENT_HOST",
        "--bind",
        folder="trusted",
    ),
    Field(
        "web_port",
        "integer",
        "Its port; 0 takes a free one.",
        "AGENT_PORT",
        "--port",
        low=0,
        high=65535,
        folder="trusted",
    ),
    Field(
        "web_pin",
        "secret",
        "What a browser logs in with. Unset: six digits, anew at each start.",
        "AGENT_PIN",
        folder="trusted",
    ),
    Field(
        "web_token",
        "secret",
        "What programs send as bearer token. Unset: one that is made once, and kept.",
        "AGENT_TOKEN",
        folder="trusted",
    ),
    Field("web_cert", "text", "Certificate chain for TLS, a PEM file.", "AGENT_CERT", "--cert", folder="trusted"),
    Field(
        "web_key",
        "text",
        "The certificate's key, a PEM file; unset where both stand in one.",
        "AGENT_KEY",
        "--key",
        folder="trusted",
    ),
    Field(
        "approval_timeout",
        "number",
        "Seconds for which an approval waits for somebody's answer in the gateway; then it counts as denied.",
        "LMAGENT_APPROVAL_TIMEOUT",
        low=1,
        high=31_536_000,
    ),
)
