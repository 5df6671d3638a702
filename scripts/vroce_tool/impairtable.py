# SPDX-License-Identifier: GPL-2.0-or-later
"""The impairment table: what loss leaves of a bandwidth.

Guests with the card and guests with soft-RoCE go through the same relay; what
counts is each one's ratio to itself without losses.
"""

from . import benchlab, programs, relay, setup
from .impair import Wire
from .util import step

NAME = "impair"
HELP = "what is left of a bandwidth on a wire that loses frames, beside rxe's"

# As rows of the table; the first is what the others are compared with.
SPECS = {
    "lossless": relay.OFF,
    "1 % lost": relay.parse("loss=1%"),
    "5 % lost, 2 % doubled, 2 % reordered":
        relay.parse("loss=5%,dup=2%,reorder=2%"),
}
PROGRAM = "ib_write_bw"
SIZE = 65536
# perftest leaves out so many seconds at the beginning and at the end.
MARGIN = 1


def measure(bench, seconds, rounds):
    """MiB/s for each of SPECS; bench: two guests joined by a relay.

    The best of some rounds, since what else the host does only slows it down.
    """
    wire = Wire(bench.lab)
    result = dict.fromkeys(SPECS, 0.0)
    # By time, not by count: rates differ by two orders of magnitude.
    common = (f"{PROGRAM} -d {{dev}} -x {{gid}} -F -s {SIZE} "
              f"-D {seconds + 2 * MARGIN} -f {MARGIN}")
    try:
        for name, spec in list(SPECS.items()) * rounds:
            wire.impair(spec)
            pair = bench.pair(common, f"{common} {{a}}",
                              timeout=120 + 4 * seconds)
            row = programs.perftest_row(pair.b.stdout)
            result[name] = max(result[name], row["BW_average[MiB/sec]"])
    finally:
        wire.impair(relay.OFF)
    return result


def ratios(figures):
    """Each figure of measure() as a part of the lossless one."""
    lossless = figures[next(iter(SPECS))]
    return {name: round(value / lossless, 3) if lossless else 0.0
            for name, value in figures.items()}


def rows(card, rxe):
    """The table as data, from what measure() returned for each."""
    card_ratios, rxe_ratios = ratios(card), ratios(rxe)
    return [{"test": PROGRAM, "size": SIZE, "impairment": name,
             "spec": str(spec), "unit": "MiB/s", "vroce": card[name],
             "rxe": rxe[name], "vroce_ratio": card_ratios[name],
             "rxe_ratio": rxe_ratios[name]} for name, spec in SPECS.items()]


def run(options):
    """The benchmark of `vroce bench impair`."""
    setup.ensure(yes=options.yes)
    rounds = options.runs or (1 if options.quick else 3)
    seconds = 1 if options.quick else 4
    measured = []
    for name, rxe in ("card", []), ("rxe", [1, 2]):
        with benchlab.lab(name, impair=relay.OFF, rxe=rxe) as bench, \
                step(f"{name}: {len(SPECS)} wires, {rounds} times"):
            measured.append(measure(bench, seconds, rounds))
    table = rows(*measured)
    show(table)
    return {"rows": table}


def show(table):
    """Print rows() for people."""
    print(f"{PROGRAM}, {SIZE} bytes: MiB/s, and ratio to lossless")
    print(f"{'':38}{'vroce':>9}{'ratio':>7}{'rxe':>10}{'ratio':>7}")
    for row in table:
        print(f"{row['impairment']:38}{row['vroce']:>9.1f}"
              f"{row['vroce_ratio']:>7.2f}{row['rxe']:>10.2f}"
              f"{row['rxe_ratio']:>7.2f}")
