"""Who may ask the model server, and from where."""

from __future__ import annotations

import pytest
from router_kit import Model, lab

from lmagent.modelserver.http.guard import AccessRules
from lmagent.modelserver.http.listening import is_loopback

SITE = "https://chat.example"
WRITE = ("POST", "/api/load", {"model": "m"})


def test_without_cors_a_foreign_page_reads_nothing_and_changes_nothing():
    with lab(Model("m")) as running:
        code, answer, fields = running.ask(*WRITE, {"Origin": SITE})
        assert (code, answer["error"]["code"]) == (403, "origin_not_allowed")
        for odd in ("null", "http://[", "://", "http://[::1"):
            assert running.ask(*WRITE, {"Origin": odd})[0] == 403
        code, _, fields = running.ask("GET", "/v1/models", headers={"Origin": SITE})
        assert not [name for name in fields if name.startswith("access-control")]
        own = {"Origin": f"http://127.0.0.1:{running.port}"}
        assert running.ask(*WRITE, own)[0] == 200
        assert running.ask(*WRITE)[0] == 200
        preflight = {"Origin": SITE, "Access-Control-Request-Method": "POST"}
        assert running.ask("OPTIONS", "/v1/models", headers=preflight)[0] == 403


def test_sites_that_are_named_may_and_others_may_not():
    with lab(Model("m"), rules=AccessRules(origins=(SITE, "http://b.example:80"))) as running:
        code, _, fields = running.ask(*WRITE, {"Origin": SITE})
        assert (code, fields["access-control-allow-origin"], fields["vary"]) == (200, SITE, "Origin")
        assert "access-control-allow-credentials" not in fields
        asked = {"Origin": SITE, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "x-a"}
        code, _, fields = running.ask("OPTIONS", "/v1/chat/completions", headers=asked)
        assert (code, fields["access-control-allow-headers"]) == (200, "x-a")
        assert "POST" in fields["access-control-allow-methods"]
        for other in ("https://chat.example.evil", "http://chat.example", "https://evil/https://chat.example"):
            assert running.ask(*WRITE, {"Origin": other})[0] == 403


def test_with_cors_all_pages_may_but_never_with_credentials():
    with lab(Model("m"), rules=AccessRules(any_origin=True)) as running:
        code, _, fields = running.ask(*WRITE, {"Origin": SITE})
        assert (code, fields["access-control-allow-origin"]) == (200, "*")
        assert "access-control-allow-credentials" not in fields
        code, _, fields = running.ask("POST", "/nothing", {}, {"Origin": SITE})
        assert (code, fields["access-control-allow-origin"]) == (404, "*")  # else the page could not read the error


@pytest.mark.parametrize("host", ["evil.example", "evil.example:1234", "127.0.0.1.evil.example", "", "a b", "[::1"])
def test_a_name_that_is_not_this_machines_is_refused_on_loopback(host):
    with lab(Model("m")) as running:
        code, answer, _ = running.ask("GET", "/v1/models", headers={"Host": host})
        assert (code, answer["error"]["code"]) in ((403, "host_not_allowed"), (400, "invalid_http"))


@pytest.mark.parametrize("host", ["localhost", "localhost:9", "127.0.0.1", "[::1]:5", "app.localhost"])
def test_names_of_this_machine_are_taken(host):
    with lab(Model("m")) as running:
        assert running.ask("GET", "/v1/models", headers={"Host": host})[0] == 200


def test_a_key_is_needed_for_all_but_health():
    with lab(Model("m"), rules=AccessRules("0.0.0.0", key="right")) as running:
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic right"}, {"x-api-key": ""}):
            code, answer, fields = running.ask("GET", "/v1/models", headers=headers)
            assert (code, answer["error"]["code"]) == (401, "invalid_api_key")
            assert fields["www-authenticate"] == "Bearer"
        for headers in ({"Authorization": "Bearer right"}, {"authorization": "bearer right"}, {"x-api-key": "right"}):
            assert running.ask("GET", "/v1/models", headers=headers)[0] == 200
        assert running.ask("GET", "/health")[0] == 200
        assert running.ask("GET", "/metrics")[0] == 401
        assert running.ask("GET", "/health", headers={"Host": "any.example"})[0] == 200


def test_loopback_is_told_from_what_only_looks_like_it():
    assert all(map(is_loopback, ("127.0.0.1", "127.9.9.9", "::1", "[::1]", "LOCALHOST", "a.localhost")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "10.0.0.1", "127.0.0.1.x", "localhost.x", "", "2130706433")))
