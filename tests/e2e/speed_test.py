# SPDX-License-Identifier: GPL-2.0-or-later
"""The card against soft-RoCE, in guests of the same shape and in one run."""

from vroce_tool import programs
from vroce_tool.e2e import CARDS, RXES, Skip, test

# What the card must reach at least, as a multiple of rxe.
TIMES_RXE = 10
# The best of a few: what else the host does can only slow a run down.
RUNS = 3

_card = {}


def best(bench, count):
    return max(programs.bandwidth(bench, "ib_write_bw", count=count)["MiB/s"]
               for _ in range(RUNS))


@test("bandwidth of ib_write_bw 64 KiB", lab=CARDS)
def card(bench):
    _card["MiB/s"] = best(bench, count=1500)
    return dict(_card)


@test("ib_write_bw 64 KiB is 10 times that of two rxe guests", lab=RXES)
def rxe(bench):
    if not _card:
        raise Skip("there is no figure of the card to compare with")
    figure = best(bench, count=150)
    times = _card["MiB/s"] / figure
    assert times >= TIMES_RXE, (f"the card {_card['MiB/s']} MiB/s, rxe "
                                f"{figure} MiB/s: {times:.1f} times")
    return {"MiB/s of rxe": figure, "MiB/s of the card": _card["MiB/s"],
            "times": round(times, 1)}
