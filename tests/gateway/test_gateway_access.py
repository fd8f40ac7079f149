"""PIN, cookies, tokens and links: who is let in, for how long, and how often one may try."""

from __future__ import annotations

import secrets
import stat
from collections.abc import Callable, Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from testkit.access_contract import AccessContract, at_once
from testkit.amount import examples

from lmagent.core.errors import ConfigError, StoreError
from lmagent.gateway.http.access import (
    ADDRESS,
    AGE,
    COOKIE,
    DEVICE,
    DEVICE_AGE,
    DEVICE_COOKIE,
    LINK,
    LOGIN,
    NO_COOKIES,
    STRANGERS,
    Access,
    Tries,
    network_of,
    new_pin,
)
from lmagent.gateway.http.accessstore import AccessFiles, AccessStore
from lmagent.gateway.http.errors import Refusal

PIN = "123456"


class Times:
    """A clock that is set."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def times() -> Times:
    return Times()


@pytest.fixture
def access(tmp_path, times) -> Access:
    return Access(AccessFiles(tmp_path / "web", monotonic=times), PIN, clock=times, monotonic=times)


def value(cookies: tuple[str, str]) -> str:
    """The login's cookie."""
    return told(cookies[-1])


def known(cookies: tuple[str, str]) -> dict[str, str]:
    """What a browser sends that logged in, out and comes again."""
    return {DEVICE_COOKIE: told(cookies[0])}


def told(cookie: str) -> str:
    return cookie.partition(";")[0].partition("=")[2]


def caller(access: Access, cookie: str) -> str:
    return access.caller(b"", {COOKIE: cookie})


def test_the_right_pin_gives_a_cookie_that_lets_in(access):
    cookies = access.login(PIN)
    assert {"HttpOnly", "SameSite=Strict", "Path=/", f"Max-Age={AGE}"} <= set(cookies[-1].split("; "))
    assert {"HttpOnly", "SameSite=Strict", f"Path={LOGIN}", f"Max-Age={DEVICE_AGE}"} <= set(cookies[0].split("; "))
    assert "Secure" not in str(cookies)
    assert caller(access, value(cookies)) == "page"


def test_with_tls_the_cookie_is_for_tls_alone(tmp_path):
    for cookie in Access(AccessFiles(tmp_path), PIN, secure=True).login(PIN):
        assert cookie.endswith("; Secure")


@pytest.mark.parametrize("wrong", ["", "12345", "1234567", "654321", "123456 ", "１２３４５６", "\ud83d", "1" * 200])
def test_a_wrong_pin_is_refused_whatever_it_looks_like(access, wrong):
    try:
        wrong.encode()
    except UnicodeEncodeError:
        wrong = "?"
    with pytest.raises(Refusal) as refused:
        access.login(wrong)
    assert (refused.value.status, refused.value.code) == (401, "wrong_pin")


def test_a_cookie_holds_for_its_time_and_no_longer(access, times):
    cookie = value(access.login(PIN))
    times.now += AGE - 1
    assert caller(access, cookie) == "page"
    times.now += 2
    assert caller(access, cookie) == "anyone"


def test_a_cookie_outlives_a_restart_with_another_pin(tmp_path, times):
    cookie = value(Access(AccessFiles(tmp_path), PIN, clock=times).login(PIN))
    assert caller(Access(AccessFiles(tmp_path), "999999", clock=times), cookie) == "page"


def test_a_cookie_of_another_data_folder_is_none(tmp_path, times):
    cookie = value(Access(AccessFiles(tmp_path / "a"), PIN, clock=times).login(PIN))
    assert caller(Access(AccessFiles(tmp_path / "b"), PIN, clock=times), cookie) == "anyone"


@settings(max_examples=examples(200))
@given(data=st.data())
def test_no_changed_cookie_lets_in(tmp_path_factory, data):
    access = Access(AccessFiles(tmp_path_factory.getbasetemp() / "changed"), PIN)
    real = value(access.login(PIN))
    at = data.draw(st.integers(0, len(real) - 1))
    other = chr(33 + (ord(real[at]) - 33 + data.draw(st.integers(1, 93))) % 94)  # the cookie differs at each run
    for changed in (real[:at] + other + real[at + 1 :], real[:at], real[:at] + other + real[at:]):
        assert caller(access, changed) == "anyone"
    assert caller(access, data.draw(st.text())) == "anyone"


def test_logging_out_ends_the_cookie_for_who_kept_a_copy_too(tmp_path, times):
    here, there = (Access(AccessFiles(tmp_path), PIN, clock=times) for _ in range(2))
    first, second = value(here.login(PIN)), value(here.login(PIN))
    assert "Max-Age=0" in here.logout({COOKIE: first})
    for access in (here, there, Access(AccessFiles(tmp_path), PIN, clock=times)):
        assert (caller(access, first), caller(access, second)) == ("anyone", "page")
    assert "Max-Age=0" in here.logout({COOKIE: "what somebody made up"})
    assert "made" not in (tmp_path / "returned").read_text()


def test_a_logout_that_cannot_be_recorded_is_an_error(tmp_path):
    access = Access(AccessFiles(tmp_path), PIN)
    cookie = value(access.login(PIN))
    (tmp_path / "returned").mkdir()
    with pytest.raises(StoreError):
        access.logout({COOKIE: cookie})


def test_the_token_lets_in_and_nothing_like_it(access):
    token = access.token.encode()
    assert access.caller(b"Bearer " + token, {}) == "token"
    assert access.caller(b"bearer  " + token + b" ", {}) == "token"
    for wrong in (token, b"Basic " + token, b"Bearer", b"Bearer " + token[:-1], b"Bearer " + token + b"x", b"\xff"):
        assert access.caller(wrong, {}) == "anyone"


def test_a_wrong_token_is_not_made_good_by_a_cookie(access):
    cookie = value(access.login(PIN))
    assert access.caller(b"Bearer wrong", {COOKIE: cookie}) == "anyone"


def test_a_link_works_once_and_dies_after_a_minute(access, times):
    ticket = access.link()
    assert caller(access, value(access.follow(ticket))) == "page"
    late = access.link()
    forged = f"{access.link()[:-2]}A="
    times.now += LINK + 0.1
    for gone in (ticket, late, forged, "", "guess"):
        with pytest.raises(Refusal) as refused:
            access.follow(gone)
        assert (refused.value.status, refused.value.code) == (404, "link_gone")


def tried(access: Access, address: str = "", cookies: Mapping[str, str] = NO_COOKIES, pin: str = "000000") -> int:
    """What comes of a wrong PIN."""
    with pytest.raises(Refusal) as refused:
        access.login(pin, address, cookies)
    assert refused.value.status == 401 or 1 <= int(refused.value.headers["retry-after"]) <= 60
    return refused.value.status


def test_guessing_gets_thirty_tries_in_ten_seconds_at_most_and_the_right_pin_works_soon_after(access, times):
    devices = [known(access.login(PIN)) for _ in range(20)]
    judged = []
    for number in range(8000):  # ten seconds at 800 a second, from everywhere at once
        times.now += 10 / 8000
        if tried(access, f"192.0.2.{number % 256}", devices[number % 20] if number % 2 else NO_COOKIES) == 401:
            judged.append(times.now)
    assert 20 <= len(judged) <= 30
    times.now += ADDRESS.every
    assert access.login(PIN, "192.0.2.1")


def test_who_guesses_at_one_address_leaves_the_others_their_tries(access, times):
    for _ in range(8000):
        times.now += 60 / 8000
        tried(access, "192.0.2.66")
    assert access.login(PIN, "192.0.2.7")
    assert access.login(PIN, "2001:db8::7")


def test_who_has_a_whole_network_guesses_as_one(access, times):
    judged = sum(tried(access, f"2001:db8:0:1:{number:x}::1") == 401 for number in range(2000))
    assert judged <= ADDRESS.burst
    assert access.login(PIN, "2001:db8:0:2::1")


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8::7", "2001:db8::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", ""),
        ("testclient", ""),
    ],
)
def test_an_address_counts_as_its_network(address, network):
    assert network_of(address) == network


def test_a_device_that_logged_in_before_gets_in_while_its_own_address_is_used_to_guess(access, times):
    device = known(access.login(PIN, "192.0.2.66"))
    for number in range(8000):  # the attack fills its address's share and that of all strangers
        times.now += 60 / 8000
        tried(access, "192.0.2.66")
        tried(access, f"198.51.100.{number % 256}")
    with pytest.raises(Refusal):
        access.login(PIN, "192.0.2.66")
    assert caller(access, value(access.login(PIN, "192.0.2.66", device))) == "page"


def test_a_device_has_a_share_too_and_it_is_small(access, times):
    guessing, other = known(access.login(PIN)), known(access.login(PIN))
    assert sum(tried(access, cookies=guessing) == 401 for _ in range(50)) == DEVICE.burst
    assert access.login(PIN, cookies=other)
    times.now += DEVICE.every
    assert access.login(PIN, cookies=guessing)


def test_a_device_cookie_that_was_made_up_or_is_too_old_is_worth_nothing(access, times, tmp_path):
    cookies = access.login(PIN)
    device, elsewhere = known(cookies), known(Access(AccessFiles(tmp_path / "other"), PIN, clock=times).login(PIN))
    real = device[DEVICE_COOKIE]
    made_up = ["", "x", "~", "~~", f"{real}x", real[:-2], real.partition("~")[0], value(cookies), "\ud83d~x", "é~é"]
    while tried(access) == 401:
        pass
    for forged in (*({DEVICE_COOKIE: text} for text in made_up), elsewhere):
        assert tried(access, cookies=forged) == 429
    times.now += DEVICE_AGE + 1
    while tried(access) == 401:
        pass
    assert tried(access, cookies=device) == 429


def test_a_device_cookie_lets_nobody_in(access):
    assert caller(access, known(access.login(PIN))[DEVICE_COOKIE]) == "anyone"


@pytest.mark.long
def test_guesses_from_a_hundred_thousand_addresses_take_no_memory(access, times):
    most = 0
    for number in range(100_000):
        times.now += 0.01
        tried(access, f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}")
        most = max(most, len(access._tries))
    whole_again = ADDRESS.burst * ADDRESS.every
    assert most <= STRANGERS.burst + whole_again / STRANGERS.every + 2  # with the common budget


def test_a_right_pin_costs_nothing(access):
    device = known(access.login(PIN))
    for _ in range(5 * STRANGERS.burst):
        access.login(PIN)
        access.login(PIN, "192.0.2.7", device)


def test_a_right_pin_is_not_told_from_a_wrong_one_while_none_is_judged(access):
    while tried(access) == 401:
        pass
    told = set()
    for pin in (PIN, "000000"):
        with pytest.raises(Refusal) as refused:
            access.login(pin)
        told.add((refused.value.status, refused.value.message, refused.value.fix))
    assert len(told) == 1


@given(gaps=st.lists(st.floats(0, 30), max_size=60), span=st.floats(1, 60))
def test_a_share_never_gives_more_than_its_burst_and_its_rate(gaps, span):
    times = Times()
    tries = Tries(times)
    given_at = []
    for gap in gaps:
        times.now += gap
        wait = tries.take("192.0.2.7", "")
        assert 0 <= wait <= ADDRESS.every + 1e-6
        if wait == 0:
            given_at.append(times.now)
    for first in given_at:
        assert sum(first <= at <= first + span for at in given_at) <= ADDRESS.burst + span / ADDRESS.every + 1 + 1e-6


def test_a_pin_is_six_digits():
    assert all(len(pin) == 6 and pin.isdecimal() for pin in (new_pin() for _ in range(50)))


def test_what_is_kept_is_the_owners_alone_and_stays(tmp_path):
    first = Access(AccessFiles(tmp_path / "web"))
    again = Access(AccessFiles(tmp_path / "web"))
    assert again.token == first.token
    assert (first.is_new, again.is_new) == (True, False)
    assert len(first.token) > 40
    for file in (tmp_path / "web").iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "web").stat().st_mode) == 0o700
    given = Access(AccessFiles(tmp_path / "web"), token="the-settings-say")
    assert (given.token, given.is_new) == ("the-settings-say", False)
    assert Access(AccessFiles(tmp_path / "web")).token == first.token


def test_a_key_that_others_could_read_is_closed_to_them(tmp_path):
    first = Access(AccessFiles(tmp_path)).token
    (tmp_path / "token").chmod(0o644)
    assert Access(AccessFiles(tmp_path)).token == first
    assert stat.S_IMODE((tmp_path / "token").stat().st_mode) == 0o600


def test_an_empty_key_is_no_key(tmp_path):
    Access(AccessFiles(tmp_path))
    (tmp_path / "cookie.key").write_text("")
    with pytest.raises(StoreError, match=r"cookie\.key is empty"):
        Access(AccessFiles(tmp_path))


class TestFiles(AccessContract):
    @pytest.fixture
    def another(self, tmp_path) -> Callable[[], AccessStore]:
        return lambda: AccessFiles(tmp_path / "web")

    def test_no_drafts_of_secrets_are_left(self, another, tmp_path):
        at_once(lambda: another().keep("token", secrets.token_hex()))
        assert [file.name for file in (tmp_path / "web").iterdir()] == ["token"]

    def test_a_pin_is_new_at_each_start(self, another):
        assert [another().keep("pin", pin) for pin in ("111111", "222222")] == ["111111", "222222"]


@pytest.mark.parametrize("token", ["with space", "tab\there", "ümlaut", "line\n"])
def test_a_token_that_no_request_can_carry_is_refused(tmp_path, token):
    with pytest.raises(ConfigError, match="AGENT_TOKEN"):
        Access(AccessFiles(tmp_path), token=token)
    assert not list(tmp_path.iterdir())


def test_a_link_in_the_place_of_a_key_is_not_followed(tmp_path):
    (tmp_path / "elsewhere").write_text("known to others")
    (tmp_path / "web").mkdir()
    (tmp_path / "web" / "token").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StoreError):
        Access(AccessFiles(tmp_path / "web"))
