"""Stepping: cron lines in time zones whose clocks jump by other than whole hours. Imported late: it needs cronsim."""

from __future__ import annotations

from cronsim import CronSim


class HourSteps(CronSim):
    """Goes from hour to hour by the clock on the wall.

    cronsim 2.8 goes by 3,600 seconds. Where the clocks went back by half an hour in between (Lord Howe Island), that
    is half past, and the next full hour that fits is passed over.
    """

    def advance_hour(self) -> bool:
        if self.dt.hour in self.hours:
            return False
        self.dt = self.dt.replace(minute=0, second=0)
        while self.dt.hour not in self.hours:
            self.tick(seconds=3600 - 60 * self.dt.minute)
            if self.dt.hour == 0:
                break
        return True
