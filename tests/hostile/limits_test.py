# SPDX-License-Identifier: GPL-2.0-or-later
"""A program takes all that the card has: the others go on."""

import re
import time
from concurrent.futures import ThreadPoolExecutor

from vroce_tool import programs
from vroce_tool.e2e import SMALL, shape, test
from vroce_tool.guest import CARD
from vroce_tool.pair import run_pair

LIMITS = {name: int(value) for name, value in
          (word.split("=") for word in dict(SMALL.options)["card"])}
DEFAULTS = {"num-qps": 16384, "num-cqs": 32768, "num-srqs": 8192,
            "num-mrs": 131072, "num-pds": 16384, "num-contexts": 1024}

# What vroce_limits calls the kinds, and the property that bounds each.
KINDS = {"SRQ": "num-srqs", "QP": "num-qps", "CQ": "num-cqs", "MR": "num-mrs",
         "PD": "num-pds", "context": "num-contexts"}
# Regions of 4096 pages each that make room for the pages of all other objects.
DEFAULTS_ROOM = 64
# What the driver and the traffic beside may hold of each kind.
OTHERS = 24


def objects(bench, number):
    return bench.run(number, "rdma resource show").strip()


def check_limits(text, limits, room):
    """What vroce_limits reached is what the card was given."""
    reached = {name: int(count) for name, count in
               re.findall(r"^(.*): (\d+), then Cannot allocate memory$", text,
                          re.MULTILINE)}
    big = reached.pop("MR of many pages")
    assert set(reached) == set(KINDS), text
    # Both kinds of region together make use of the keys.
    reached["MR"] += big - room
    for kind, name in KINDS.items():
        assert limits[name] - OTHERS <= reached[kind] <= limits[name], \
            f"{kind}: {reached[kind]} of {limits[name]}\n{text}"
    return {kind: count for kind, count in reached.items()}


class Traffic:
    """A checked transfer from guest 2 to guest 1 that goes on and on."""

    LOG = "/run/limits-traffic"
    COMMAND = ("/artifacts/vroce_xfer -d {dev} -g {gid} -s 1M -o write "
               "-n 1000000")

    def __init__(self, bench):
        self.bench = bench
        self.pool = ThreadPoolExecutor(1)

    def __enter__(self):
        self.bench.run(2, f": > {self.LOG}")
        self.pair = self.pool.submit(
            run_pair, self.bench.lab, self.COMMAND,
            f"exec {self.COMMAND} {{a}} > {self.LOG}", timeout=600, daemon=True)
        self.goes_on()
        return self

    def __exit__(self, *_exception):
        self.bench.run(2, "pkill -x vroce_xfer", check=False)
        self.pool.shutdown()

    def count(self):
        lines = self.bench.run(2, f"cat {self.LOG}").splitlines()
        assert all(line.endswith(" match") for line in lines), lines
        return len(lines)

    def goes_on(self):
        """It does some more, all of it right."""
        enough = self.count() + 3
        while self.count() < enough:
            assert not self.pair.done(), self.pair.result()
            time.sleep(0.3)


def exhaust(bench, limits, options="", room=0, patience=120):
    """Exhaust guest 1's card while data goes through it.

    room: how many of the regions of many pages are given back for the others.
    """
    before = objects(bench, 1)
    bench.run(1, "rm -f /run/limits.*; mkfifo /run/limits.in")
    with Traffic(bench) as traffic, ThreadPoolExecutor(1) as pool:
        during = objects(bench, 1)
        taker = pool.submit(
            bench.guest(1).run,
            f"/artifacts/vroce_limits -w -p {room} {options} "
            "<> /run/limits.in | tee /run/limits.out", timeout=patience)
        while "all is taken" not in bench.run(1, "cat /run/limits.out || true"):
            assert not taker.done(), taker.result()
            time.sleep(0.3)
        # What is there goes on, what is new is refused, in words.
        traffic.goes_on()
        result = bench.guest(1).run("ibv_rc_pingpong -g 1", check=False)
        assert result.returncode, result
        assert re.search("Couldn't|Failed", result.stderr), result.stderr
        programs.ping(bench, count=2)
        bench.run(1, "echo > /run/limits.in")
        text = taker.result().stdout
        after = objects(bench, 1)
        assert after == during, f"left: {after}, before: {during}"
        traffic.goes_on()
    assert objects(bench, 1) == before, (objects(bench, 1), before)
    programs.works(bench)
    return check_limits(text, limits, room)


@test("a program that takes all that the card has gets ENOMEM, the others go "
      "on, and all of it comes back", lab=SMALL)
def all_taken(bench):
    return exhaust(bench, LIMITS)


@test("what a program that ends without giving back had taken comes back",
      lab=SMALL, slow=True)
def all_left(bench):
    return exhaust(bench, LIMITS, "-x")


@test("all that a card of the usual size has", slow=True,
      lab=shape(CARD, CARD, memory=4096))
def all_of_the_defaults(bench):
    return exhaust(bench, DEFAULTS, room=DEFAULTS_ROOM, patience=1800)
