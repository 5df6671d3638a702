# SPDX-License-Identifier: GPL-2.0-or-later
"""What the card costs while nothing happens.

The processor time (user and system) of a QEMU whose guest idles, with the
card and after it was unplugged: of one process, so that nothing else differs.
"""

import os
import time
from pathlib import Path

from . import benchtable, setup
from .benchlab import lab
from .util import UserError, step

NAME = "idle"
HELP = "processor time of an idle guest, with the card minus without"

SECONDS, QUICK_SECONDS = 60, 2
SETTLE_SECONDS, QUICK_SETTLE_SECONDS = 10, 1
UNPLUG_SECONDS = 30


def cpu_seconds(pid):
    """User and system time of a process so far."""
    stat = Path(f"/proc/{pid}/stat").read_text()
    words = stat.rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def load(pid, seconds):
    """Percent of one processor that a process uses for some time."""
    before, began = cpu_seconds(pid), time.monotonic()
    time.sleep(seconds)
    return 100 * (cpu_seconds(pid) - before) / (time.monotonic() - began)


def unplug(guest):
    """Take the card away, as a user of the guest's hot plug would."""
    with guest.qmp() as qmp:
        qmp.execute("device_del", id="card")
        deadline = time.monotonic() + UNPLUG_SECONDS
        while any(part["name"] == "card" for part in
                  qmp.execute("qom-list", path="/machine/peripheral")):
            if time.monotonic() > deadline:
                raise UserError("the guest did not release the card within "
                                f"{UNPLUG_SECONDS} s")
            time.sleep(0.2)


def run(options):
    setup.ensure(yes=options.yes)
    seconds = QUICK_SECONDS if options.quick else SECONDS
    settle = QUICK_SETTLE_SECONDS if options.quick else SETTLE_SECONDS
    with lab("idle", count=1) as bench:
        guest = bench.guest(1)
        pid = bench.lab.state[guest.name]["pid"]
        with step("settling"):
            time.sleep(settle)
        with step(f"with the card, {seconds} s"):
            card = load(pid, seconds)
        unplug(guest)
        with step("settling"):
            time.sleep(settle)
        with step(f"without it, {seconds} s"):
            bare = load(pid, seconds)
    data = {"seconds": seconds, "rows": [
        {"guest": "with the card", "unit": "% of a core",
         "cpu": round(card, 3)},
        {"guest": "without it", "unit": "% of a core", "cpu": round(bare, 3)},
        {"guest": "difference", "unit": "% of a core",
         "cpu": round(card - bare, 3)}]}
    print()
    benchtable.show(["guest", "% of a core"],
                    [[row["guest"], f"{row['cpu']:.2f}"]
                     for row in data["rows"]])
    print()
    return data
