# SPDX-License-Identifier: GPL-2.0-or-later
"""What `vroce bench` measures between guests works; no figure is asserted."""

from vroce_tool import benchrdma, benchwakeups
from vroce_tool.e2e import test

MESSAGES = 40


@test("vroce bench: bandwidth, latency and TCP")
def rows(bench):
    figures = {}
    for row in benchrdma.QUICK_ROWS:
        figure = benchrdma.measure(bench, row, MESSAGES)
        assert figure > 0, f"{row.title}: {figure}"
        figures[f"{row.unit} of {row.title}"] = round(figure, 1)
    return figures


@test("vroce bench: wake-ups are counted by thread")
def wakeups(bench):
    row = benchwakeups.measure_test(bench, benchwakeups.TESTS[0],
                                    benchwakeups.QUICK_FEW,
                                    benchwakeups.QUICK_MANY)
    for side in ("sender", "receiver"):
        for thread in ("main loop", "vCPUs"):
            assert isinstance(row[f"{side} {thread}"], float), row
    return {"main loop's wake-ups a message, sender":
            row["sender main loop"], "receiver": row["receiver main loop"]}
