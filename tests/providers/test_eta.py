"""How long the rest of the prompt will take, as the server reports its progress."""

import pytest

from lmagent.providers.meters import PrefillEta


def play(time_at, total: int, *, cached: int = 0, batch: int = 512, until: float = 1.0):
    """The last progress event when `until` of the work is done; `time_at(n)` is when n fresh tokens are read."""
    eta, done, last = PrefillEta(), cached, None
    while done - cached < until * (total - cached):
        done = min(total, done + batch)
        report = {"total": total, "cache": cached, "processed": done, "time_ms": 1000 * time_at(done - cached)}
        last = eta.read(report, 0.0)
    assert last is not None
    return last, time_at(total - cached) - time_at(done - cached)


CURVES = {
    "even": lambda n: n / 100,
    "slowing": lambda n: n / 200 + n * n / 2_000_000,
    "slowing a lot": lambda n: n / 1000 + n * n / 200_000,
    "with a late start": lambda n: n / 100 + 0.5,
}


@pytest.mark.parametrize("curve", CURVES)
@pytest.mark.parametrize(("total", "cached"), [(8000, 0), (30000, 6000), (120000, 20000)])
def test_after_a_third_the_rest_is_known_to_a_fifth(curve, total, cached):
    progress, left = play(CURVES[curve], total, cached=cached, until=1 / 3)
    assert progress.seconds_left == pytest.approx(left, rel=0.2)


def test_uneven_batches_do_not_confuse_it():
    def bumpy(n: float) -> float:
        return n / 100 + (0.4 if (n // 512) % 2 else 0.0)

    progress, left = play(bumpy, 20000, until=1 / 3)
    assert progress.seconds_left == pytest.approx(left, rel=0.2)


def test_the_share_counts_what_was_cached_and_the_time_does_not():
    progress = PrefillEta().read({"total": 1000, "cache": 600, "processed": 700, "time_ms": 1000}, 0.0)
    assert progress.fraction == pytest.approx(0.7)
    assert progress.seconds_left == pytest.approx(3.0)


def test_a_plain_fraction_is_timed_by_our_own_clock():
    eta = PrefillEta()
    eta.read(0.25, 10.0)
    progress = eta.read(0.5, 20.0)
    assert (progress.fraction, progress.seconds_left) == (0.5, pytest.approx(20.0))


@pytest.mark.parametrize(
    "report",
    [
        None,
        "half",
        True,
        {},
        [],
        {"total": 0},
        {"total": "x"},
        {"total": -1, "processed": 5},
        {"total": 1e300, "processed": 1},
    ],
)
def test_nonsense_is_a_sign_of_life_and_nothing_more(report):
    assert PrefillEta().read(report, 1.0).seconds_left is None


def test_reports_that_stand_still_or_go_back_do_no_harm():
    eta = PrefillEta()
    for processed in (100, 100, 50, 0, 2000):
        progress = eta.read({"total": 1000, "cache": 0, "processed": processed, "time_ms": 500}, 0.0)
        assert 0.0 <= (progress.fraction or 0.0) <= 1.0
        assert progress.seconds_left is None or progress.seconds_left >= 0.0
