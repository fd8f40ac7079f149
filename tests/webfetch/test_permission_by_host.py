"""web_fetch in a session: which hosts are asked about, what "always" grants, and what each surface receives."""

from __future__ import annotations

import json
from pathlib import Path

import anyio
import pytest
from fetch_kit import run
from testkit.trapsite import connections

from lmagent.app.single import call_tool
from lmagent.testing.script import call


@pytest.fixture
def workspace(empty_workspace: Path) -> Path:
    return empty_workspace


def fetch(url: str, **more: object):
    return call("use_tool", name="web_fetch", arguments={"url": url, **more})


def test_the_question_names_the_host_and_the_whole_address(workspace, site):
    ran = run(workspace, fetch(site.url("/page?q=1")), sandbox_hosts=(site.address,))
    (asked,) = ran.asked
    assert asked.summary == f"web_fetch {site.url('/page?q=1')}"
    assert asked.reason == f"normal mode asks before connecting to {site.address}"
    assert asked.preview == f"Fetch a page from {site.address}:\n{site.url('/page?q=1')}"
    assert asked.grant == f"web_fetch({site.address})"


def test_always_grants_the_host_for_the_session_and_no_other(workspace, site):
    named = f"localhost:{site.port}"
    calls = (fetch(site.url("/page")), fetch(site.url("/orders")), fetch(f"http://{named}/page"))
    ran = run(workspace, *calls, scope="session", sandbox_hosts=(site.address, named))
    assert [asked.grant for asked in ran.asked] == [f"web_fetch({site.address})", f"web_fetch({named})"]
    assert ran.statuses == ["ok"] * 3


def test_a_redirect_to_another_host_is_a_question_of_its_own(workspace, site):
    ran = run(workspace, fetch(site.to("https://elsewhere.test/page")), sandbox_hosts=(site.address,))
    assert [asked.grant for asked in ran.asked] == [f"web_fetch({site.address})", "web_fetch(elsewhere.test)"]
    assert ran.asked[1].summary == "follow the page's redirect to elsewhere.test"
    assert "There is no host named elsewhere.test" in ran.results[0].content


def test_a_redirect_gets_the_decision_that_a_call_of_its_address_gets(workspace, site):
    flags = {"sandbox_hosts": (site.address,), "permission_mode": "auto"}
    ran = run(workspace, fetch(site.to("https://elsewhere.test/page")), fetch("https://elsewhere.test/page"), **flags)
    assert ran.asked == []
    assert ["There is no host named" in result.content for result in ran.results] == [True, True]
    ran = run(
        workspace, fetch(site.to("https://elsewhere.test/")), permission_ask=("web_fetch(elsewhere.test)",), **flags
    )
    assert [asked.grant for asked in ran.asked] == [""]


def test_a_denied_host_is_denied_in_every_mode_and_as_a_redirect(workspace, site):
    named = f"localhost:{site.port}"
    calls = (fetch(f"http://{named}/page"), fetch(site.to("https://www.elsewhere.test/page")))
    flags = {"permission_mode": "auto", "permission_deny": ("effect:net(localhost)", "web_fetch(elsewhere.test)")}
    with connections() as tried:
        ran = run(workspace, *calls, sandbox_hosts=(site.address, named), **flags)
    assert ran.statuses == ["denied", "error"]
    assert "connecting to www.elsewhere.test was not allowed" in ran.results[1].content
    assert ran.asked == []
    assert {host for host, port in tried if port == site.port} == {"127.0.0.1"}
    assert site.seen[-1].startswith("/to/")


def test_unattended_a_page_needs_a_rule(workspace, site):
    ran = run(workspace, fetch(site.url("/page")), attended=False, sandbox_hosts=(site.address,))
    assert ran.statuses == ["denied"]
    allowed = {"permission_allow": (f"web_fetch({site.address})",), "sandbox_hosts": (site.address,)}
    ran = run(workspace, fetch(site.url("/page")), attended=False, **allowed)
    assert ran.statuses == ["ok"]


def test_an_address_that_is_not_fetched_is_not_asked_about(workspace, site):
    calls = (fetch("http://user:secret@127.0.0.1/"), fetch("file:///etc/passwd"), fetch("http://127.0.0.1:1/"))
    ran = run(workspace, *calls)
    assert ran.statuses == ["error"] * 3
    assert ran.asked == []
    assert ran.results[2].data["summary"] == "web_fetch http://127.0.0.1:1/"


def test_the_surfaces_receive_the_address_and_the_title(workspace, site):
    ran = run(workspace, fetch(site.url("/page")), sandbox_hosts=(site.address,), permission_mode="auto")
    (result,) = ran.results
    assert result.data["page"] == {"url": site.url("/page"), "title": "A page"}
    assert (result.data["status"], result.data["kind"]) == (200, "html")


def test_a_long_page_is_an_artifact_that_can_be_read_on(workspace, site):
    flags = {"sandbox_hosts": (site.address,), "permission_mode": "auto"}
    ran = run(workspace, fetch(site.url("/ten-megabytes"), max_chars=2000), **flags)
    (result,) = ran.results
    assert result.artifact
    assert len(result.content) < 2600
    assert f'read_artifact(id="{result.artifact[:12]}")' in result.content


def test_with_a_small_window_the_page_is_shortened_within_its_frame(workspace, site):
    flags = {"sandbox_hosts": (site.address,), "permission_mode": "auto", "context_window": 8192}
    ran = run(workspace, fetch(site.url("/ten-megabytes"), max_chars=200_000), **flags)
    (result,) = ran.results
    lines = result.content.splitlines()
    mark = lines[0].split()[1]
    assert f"</outside {mark}>" in lines
    assert "left out" not in result.content
    assert " characters; a css_selector or a larger max_chars shows more]" in result.content


def test_a_single_call_of_the_user_asks_about_a_redirect_too(workspace, site, monkeypatch):
    monkeypatch.setenv("LMAGENT_SANDBOX_HOSTS", site.address)
    asked: list[str] = []

    def ask(question: str) -> bool:
        asked.append(question)
        return len(asked) == 1

    arguments = json.dumps({"url": site.to("https://elsewhere.test/page")})
    result = anyio.run(call_tool, workspace, "web_fetch", arguments, ask)
    assert result.status == "refused"
    assert "connecting to elsewhere.test was not allowed" in result.text
    assert asked[1] == "web_fetch — normal mode asks before connecting to elsewhere.test"
