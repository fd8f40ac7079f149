"""Three workers and their database are killed, stopped, cut off and restarted at random while sessions run.

All sessions end, each event is recorded once and in order, and no call acts twice. `LMAGENT_ROUNDS` and `LMAGENT_SEED`
are the number of the faults and their seed.
"""

from __future__ import annotations

import os
import random
import time

import pytest
from cluster_workers_kit import workers

pytestmark = [pytest.mark.crash, pytest.mark.long]

ROUNDS = int(os.environ.get("LMAGENT_ROUNDS", "200" if "LMAGENT_ALL" in os.environ else "8"))
SEED = int(os.environ.get("LMAGENT_SEED", "1"))


def test_faults_at_random_lose_and_repeat_nothing(tmp_path):
    chance = random.Random(SEED)
    with workers(tmp_path, seconds=0.2) as made:
        faults: list[str] = []
        for _ in range(ROUNDS):
            made.submit(3)
            time.sleep(chance.uniform(0.1, 1.5))
            faults.append(made.fault(chance))
        made.until_all_ended(60 + 3 * ROUNDS)
        cut_off = made.assert_done_once()
        print(f"seed {SEED}: {faults}; {made.submitted} sessions, {cut_off} calls cut off")
