"""Logins of a cluster: each gateway admits the browsers of the others, and none that logged out anywhere."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from cluster_kit import Cluster
from gateway_kit import Client, Running, until
from testkit.access_contract import PIN, AccessContract, cookie_of
from testkit.postgres import postgres

from lmagent.cluster import access as tables
from lmagent.cluster.access import AccessTables
from lmagent.cluster.database import Database
from lmagent.core.errors import StoreError
from lmagent.gateway.http.access import LINK, Access
from lmagent.gateway.http.accessstore import AccessStore
from lmagent.gateway.http.errors import Refusal
from lmagent.testing import ScriptedServer


@contextmanager
def stores(url: str) -> Iterator[Callable[[], AccessTables]]:
    """Yield a function that makes the store of another gateway."""
    with ExitStack() as stack:

        def another() -> AccessTables:
            database = Database(url)
            stack.callback(database.close)
            made = AccessTables(database)
            stack.callback(made.close)
            return made

        yield another


class TestTables(AccessContract):
    @pytest.fixture
    def another(self, known: Cluster) -> Iterator[Callable[[], AccessStore]]:
        with stores(known.url) as another:
            yield another

    def test_the_pin_is_made_once_and_a_users_own_wins(self, another):
        first = Access(another())
        assert (len(first.pin), Access(another()).pin) == (6, first.pin)
        given = Access(another(), "271828", "a-token-of-my-own")
        assert (given.pin, given.token) == ("271828", "a-token-of-my-own")
        assert Access(another()).token == first.token

    def test_a_link_of_one_gateway_is_followed_at_another_within_its_time(self, another, known):
        here, there = Access(another(), PIN), Access(another(), PIN)
        assert there.caller(b"", cookie_of(there.follow(here.link()))) == "page"
        late = here.link()
        known.sql(f"UPDATE access_link SET until = until - interval '{LINK} s'")
        with pytest.raises(Refusal):
            there.follow(late)

    def test_more_gateways_give_no_more_tries_of_the_pin(self, another):
        gateways = [Access(another(), PIN) for _ in range(4)]
        began = time.monotonic()
        judged = 0
        for number in range(160):  # from everywhere at once
            with pytest.raises(Refusal) as refused:
                gateways[number % 4].login("000000", f"192.0.2.{number}")
            judged += refused.value.status == 401
        assert 10 <= judged <= 10 + (time.monotonic() - began) / 2 + 1

    def test_a_right_pin_costs_no_try_at_any_gateway(self, another):
        gateways = [Access(another(), PIN) for _ in range(2)]
        for number in range(60):
            gateways[number % 2].login(PIN, "192.0.2.7")

    def test_no_list_of_past_logins_grows(self, another, known):
        access = Access(another(), PIN)
        for _ in range(2):
            access.logout(cookie_of(access.login(PIN)))
            access.link()
            known.sql("UPDATE access_revoked SET until = now(); UPDATE access_link SET until = now()")
        assert known.sql("SELECT (SELECT count(*) FROM access_revoked), (SELECT count(*) FROM access_link)") == "1|1"

    def test_a_secret_that_was_deleted_is_made_anew(self, another, known):
        before = Access(another())
        cookie = cookie_of(before.login(before.pin))
        known.sql("DELETE FROM access WHERE name = 'pin' OR name = 'token'")
        after = Access(another())
        assert after.is_new
        assert after.token != before.token
        assert after.caller(b"", cookie) == "page"
        known.sql("DELETE FROM access WHERE name = 'cookie.key'")
        assert Access(another()).caller(b"", cookie) == "anyone"

    def test_the_tables_hold_no_ticket_that_could_be_followed(self, another, known):
        ticket = Access(another(), PIN).link()
        assert ticket not in known.sql("SELECT convert_from(digest, 'LATIN1') FROM access_link")


def test_no_cookie_counts_while_the_database_is_away_for_long_and_each_does_again_when_it_is_back(monkeypatch):
    monkeypatch.setattr(tables, "STALE", 2.0)
    with postgres() as server, ExitStack() as stack:
        database = Database(server.url())
        stack.callback(database.close)
        database.migrate()
        another = stack.enter_context(stores(server.url()))
        access = Access(another(), PIN)
        cookie, out = cookie_of(access.login(PIN)), cookie_of(access.login(PIN))
        access.logout(out)
        server.stop()
        assert access.caller(b"", cookie) == "page"
        with pytest.raises(StoreError, match="no browser is let in"):
            until(lambda: access.caller(b"", cookie) != "page", seconds=10)
        assert access.caller(b"Bearer " + access.token.encode(), {}) == "token"
        server.start()

        def is_back() -> bool:
            try:
                return access.caller(b"", cookie) == "page"
            except StoreError:
                return False

        until(is_back, seconds=15)
        assert access.caller(b"", out) == "anyone"


def test_without_cluster_url_a_gateway_loads_nothing_of_the_extra(tmp_path):
    program = """
import sys
from pathlib import Path
import lmagent.cli.web
from lmagent.config.settings import Settings
from lmagent.gateway.http.access import Access
from lmagent.gateway.http.accessstore import access_store
Access(access_store(Settings(agent_data_dir=Path(sys.argv[1]))))
print([name for name in sys.modules if name.startswith(("psycopg", "procrastinate", "lmagent.cluster."))])
"""
    command = [sys.executable, "-c", program, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout == "[]\n", done.stderr


# --- processes --------------------------------------------------------------------------------------------------------


class Gateways:
    """Two `lmagent web`, as on two machines: they share nothing but the database."""

    def __init__(self, url: str, folder: Path, model: ScriptedServer) -> None:
        env = {"LMAGENT_CLUSTER_URL": url, "LMAGENT_CLUSTER_WORKSPACE": "shared", "AGENT_PIN": ""}
        self.both: list[Running] = []
        for name in ("one", "two"):
            (folder / name).mkdir()
            self.both.append(Running(folder / name, model, (), env))

    def pin(self, number: int) -> str:
        found = re.findall(r"^ *PIN (\d{6})$", "".join(self.both[number].said), re.MULTILINE)
        return found[-1]


@pytest.fixture(name="gateways")
def _gateways(known: Cluster, tmp_path: Path) -> Iterator[Gateways]:
    with ScriptedServer() as model:
        made = Gateways(known.url, tmp_path, model)
        try:
            for running in made.both:
                running.start()
            yield made
        finally:
            for running in made.both:
                if running.process is not None and running.process.poll() is None:
                    running.stop()


def asked(running: Running, page: Client) -> int:
    """Return the status for a browser that a load balancer sends to this gateway."""
    headers = {**page.headers, "Origin": running.url}
    return Client(running.port, headers).ask("GET", "/api/sessions").status


def test_browsers_and_programs_of_one_gateway_are_those_of_the_other(gateways: Gateways, known: Cluster):
    one, two = gateways.both
    assert gateways.pin(0) == gateways.pin(1)
    assert one.headers == two.headers  # the token
    assert Client(two.port, one.headers).ask("GET", "/api/sessions").status == 200
    page, other = one.page(gateways.pin(1)), two.page(gateways.pin(0))
    assert [asked(running, page) for running in (one, two)] == [200, 200]

    one.stop()
    one.start()
    assert gateways.pin(0) == gateways.pin(1)
    assert [asked(running, page) for running in (one, two)] == [200, 200]

    assert page.ask("POST", "/api/logout").status == 200
    assert asked(one, page) == 401
    until(lambda: asked(two, page) == 401, seconds=10)
    assert [asked(running, other) for running in (one, two)] == [200, 200]

    secrets = [known.sql(f"SELECT value FROM access WHERE name = '{name}'") for name in ("token", "cookie.key")]
    assert one.headers["Authorization"] == f"Bearer {secrets[0]}"
    for running in gateways.both:
        assert not any(secret in "".join(running.said) for secret in secrets)
        assert not (running.folder / "data" / "web").exists()


@pytest.mark.long
def test_a_gateway_that_was_stopped_admits_no_browser_that_logged_out_meanwhile(gateways: Gateways):
    one, two = gateways.both
    page = one.page(gateways.pin(0))
    assert asked(two, page) == 200
    assert two.process is not None
    os.kill(two.process.pid, signal.SIGSTOP)
    try:
        assert page.ask("POST", "/api/logout").status == 200
        time.sleep(tables.STALE + 0.5)
    finally:
        os.kill(two.process.pid, signal.SIGCONT)
    assert asked(two, page) in (401, 500)  # 500 until it has asked the database
    until(lambda: asked(two, page) == 401, seconds=10)


def test_without_the_database_a_gateway_says_what_to_do_and_does_not_start(tmp_path: Path):
    with ScriptedServer() as model:
        running = Gateways("postgresql://nobody@127.0.0.1:9/none", tmp_path, model).both[0]
        for done in (running.lmagent("web", "token"), running.lmagent("web", "0", "--no-browser")):
            assert done.returncode == 1
            assert "cannot be reached" in done.stderr
            assert "lmagent cluster doctor" in done.stderr
