# SPDX-License-Identifier: GPL-2.0-or-later
"""The card beside soft-RoCE, in guests of the same shape and in one run.

These measure and fail only when a program does: machines differ in what else
they do.
"""

from vroce_tool import programs
from vroce_tool.e2e import CARDS, RXES, Skip, test

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


@test("ib_write_bw 64 KiB beside that of two rxe guests", lab=RXES, slow=True)
def rxe(bench):
    if not _card:
        raise Skip("there is no figure of the card to compare with")
    figure = best(bench, count=150)
    return {"MiB/s of rxe": figure, "MiB/s of the card": _card["MiB/s"],
            "times": round(_card["MiB/s"] / figure, 1)}
