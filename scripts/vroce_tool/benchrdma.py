# SPDX-License-Identifier: GPL-2.0-or-later
"""The card beside soft-RoCE over virtio-net, by perftest and TCP.

Two labs of guests of one shape are booted; only the one that is measured
runs.  Each row is measured in both in turn, several times, and the best
counts: what else the host does can only slow a run down.
"""

from typing import NamedTuple

from . import benchtable, programs, setup
from .benchlab import attempt, freeze, lab
from .guest import CARD, RXE
from .util import say, step

NAME = "rdma"
HELP = ("perftest's bandwidths and latencies and TCP, of the card and of "
        "soft-RoCE")

RUNS = 3
SECONDS = 1.5           # of one measurement
MEBIBYTE = 1 << 20
TCP = "tcp"
BANDWIDTH, LATENCY = "MiB/s", "us"

# Before anything is known: enough to see how fast it is.
FIRST_BYTES = 8 << 20
MIN_COUNT, FIRST_MAX_COUNT, MAX_COUNT = 20, 500, 200000


class Row(NamedTuple):
    """A thing to measure."""
    test: str
    size: int           # bytes
    qps: int
    unit: str

    @property
    def title(self):
        qps = f" {self.qps} QPs" if self.qps > 1 else ""
        return f"{self.test} {benchtable.size(self.size)}{qps}"

    def ratio(self, card, rxe):
        """How many times better the card is; more is better in any unit."""
        return card / rxe if self.unit == BANDWIDTH else rxe / card


ROWS = [Row(f"ib_{op}_bw", size, qps, BANDWIDTH)
        for op in ("write", "read", "send")
        for qps in (1, 16) for size in (64, 4096, 65536, MEBIBYTE)] + \
    [Row(f"ib_{op}_lat", size, 1, LATENCY)
     for op in ("write", "read", "send") for size in (8, 4096)] + \
    [Row(TCP, 65536, 1, BANDWIDTH)]

QUICK_ROWS = [Row("ib_write_bw", 65536, 1, BANDWIDTH),
              Row("ib_write_lat", 8, 1, LATENCY), ROWS[-1]]


# -------------------------------------------------------------- measuring

def tcp(bench, size, count):
    """MiB/s of a stream over TCP: rstream with sockets for rsockets.

    One side sends count times, then the other does.
    """
    common = f"rstream -T s -S {size} -I 1 -C {count}"
    result = bench.pair(f"{common} -b {{a}}", f"{common} -s {{a}}")
    # The last column is us for each transfer.
    microseconds = programs.number(r"\s([\d.]+)\s*$", result.b.stdout, "time")
    return size / microseconds * 1e6 / MEBIBYTE


def measure(bench, row, count):
    """One figure, of about count messages."""
    if row.test == TCP:
        return tcp(bench, row.size, count)
    if row.unit == LATENCY:
        return programs.latency(bench, row.test, row.size,
                                count=count)["us typical"]
    options = f"-q {row.qps}" if row.qps > 1 else ""
    return programs.bandwidth(bench, row.test, row.size, options,
                              max(MIN_COUNT, count // row.qps))["MiB/s"]


def first_count(row):
    return max(MIN_COUNT, min(FIRST_MAX_COUNT, FIRST_BYTES // row.size))


def next_count(row, figure, seconds):
    """How many messages take about that many seconds."""
    rate = figure * MEBIBYTE / row.size if row.unit == BANDWIDTH \
        else 1e6 / (2 * figure)
    return int(max(MIN_COUNT, min(MAX_COUNT, rate * seconds)))


def measure_row(row, benches, runs, seconds):
    """Measure one row in each bench in turn; a list of figures for each.

    The first measurement says how many messages the others take, and warms
    up what is to be warm.  What fails in a bench is said, and has no figure.
    """
    counts, figures = {}, {mode: [] for mode in benches}
    for again in range(runs + 1):
        for mode, bench in benches.items():
            if again and mode not in counts:
                continue
            figure = attempt(row.title, mode, bench, measure, row,
                             counts[mode] if again else first_count(row))
            if figure is None:
                counts.pop(mode, None)
            elif again:
                figures[mode].append(figure)
            else:
                counts[mode] = next_count(row, figure, seconds)
    return figures


def summary(row, figures):
    """A row of the results from its figures; the best of each side counts.

    A side without figures is None, and so is the ratio then.
    """
    best = max if row.unit == BANDWIDTH else min
    card, rxe = (best(figures[mode], default=None) for mode in (CARD, RXE))
    both = None not in (card, rxe)
    return {**row._asdict(),
            "vroce": None if card is None else round(card, 3),
            "rxe": None if rxe is None else round(rxe, 3),
            "ratio": round(row.ratio(card, rxe), 2) if both else None,
            "runs": {"vroce": figures[CARD], "rxe": figures[RXE]}}


# ---------------------------------------------------------------- results

def failures(data):
    """Where the card failed: what soft-RoCE cannot do is no fault of ours."""
    return [row["test"] for row in data["rows"] if row["vroce"] is None]


def show(data):
    print(f"\nmemcpy of the host: {data['memcpy_gib_s']} GiB/s")
    benchtable.show(
        ["test", "size", "QPs", "unit", "vroce", "rxe", "ratio"],
        [[row["test"], benchtable.size(row["size"]), row["qps"], row["unit"],
          benchtable.number(row["vroce"]), benchtable.number(row["rxe"]),
          benchtable.number(row["ratio"])] for row in data["rows"]])
    print("ratio: how many times better vroce is (of latencies rxe / vroce)\n")


def run(options):
    setup.ensure(yes=options.yes)
    rows = QUICK_ROWS if options.quick else ROWS
    runs = options.runs or (1 if options.quick else RUNS)
    seconds = 0.1 if options.quick else SECONDS
    with step("memcpy"):
        memcpy = benchtable.memcpy_gib_s()
    results = []
    with lab("card") as card:
        freeze(card)
        with lab("rxe", rxe=[1, 2]) as rxe:
            freeze(rxe)
            for done, row in enumerate(rows, 1):
                with step(f"{row.title} ({done} of {len(rows)})"):
                    figures = measure_row(row, {CARD: card, RXE: rxe}, runs,
                                          seconds)
                results.append(summary(row, figures))
                say(f"{row.title}: vroce {results[-1]['vroce']}, rxe "
                    f"{results[-1]['rxe']} {row.unit}, ratio "
                    f"{results[-1]['ratio']}")
    data = {"memcpy_gib_s": memcpy, "rows": results}
    show(data)
    return data
