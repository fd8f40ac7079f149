"""What gateways may rely on of the place where logins are kept; subclasses say which place."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable
from typing import TypeVar

import pytest

from lmagent.gateway.http.access import COOKIE, Access, Refusal
from lmagent.gateway.http.accessstore import AccessStore

T = TypeVar("T")
PIN = "123456"


def at_once(work: Callable[[], T], count: int = 8) -> list[T]:
    """Return what so many threads got."""
    got: list[T] = []
    threads = [threading.Thread(target=lambda: got.append(work())) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(got) == count
    return got


def cookie_of(cookies: tuple[str, str]) -> dict[str, str]:
    """Return what a browser sends that was given these cookies."""
    return {COOKIE: cookies[-1].partition(";")[0].partition("=")[2]}


class AccessContract:
    """`another` makes the store of another gateway at each call."""

    @pytest.fixture
    def another(self) -> Callable[[], AccessStore]:
        raise AssertionError("override another")

    def test_gateways_have_the_same_token_and_admit_each_others_browsers(self, another: Callable[[], AccessStore]):
        here, there = Access(another(), PIN), Access(another(), PIN)
        assert here.token == there.token
        assert there.caller(b"", cookie_of(here.login(PIN))) == "page"
        assert there.key_of("page") == here.key_of("page")

    def test_gateways_that_start_at_once_agree(self, another: Callable[[], AccessStore]):
        got = at_once(lambda: [another().keep(name, secrets.token_hex()) for name in ("token", "cookie.key")])
        assert len({tuple(kept) for kept in got}) == 1
        assert len(set(got[0])) == 2

    def test_a_browser_that_logs_out_is_logged_out_at_each_gateway(self, another: Callable[[], AccessStore]):
        here, there = Access(another(), PIN), Access(another(), PIN)
        out, stays = cookie_of(here.login(PIN)), cookie_of(here.login(PIN))
        here.logout(out)
        assert here.caller(b"", out) == "anyone"
        assert Access(another(), PIN).caller(b"", out) == "anyone"
        end = time.monotonic() + 5
        while there.caller(b"", out) == "page":
            assert time.monotonic() < end
            time.sleep(0.05)
        assert [access.caller(b"", stays) for access in (here, there)] == ["page", "page"]

    def test_of_many_that_follow_a_link_one_is_let_in(self, another: Callable[[], AccessStore]):
        access = Access(another(), PIN)
        ticket = access.link()

        def follow() -> bool:
            try:
                return access.caller(b"", cookie_of(access.follow(ticket))) == "page"
            except Refusal:
                return False

        assert sorted(at_once(follow)) == [False] * 7 + [True]

    def test_guesses_at_one_gateway_get_its_tries_and_no_more(self, another: Callable[[], AccessStore]):
        access = Access(another(), PIN, monotonic=lambda: 0.0)

        def guess() -> int:
            with pytest.raises(Refusal) as refused:
                access.login("000000", "192.0.2.7")
            return refused.value.status

        assert sorted(at_once(guess, 20)) == [401] * 5 + [429] * 15
