# SPDX-License-Identifier: GPL-2.0-or-later
"""How often a message wakes a thread of QEMU.

The kernel counts how often each thread gave up the processor to wait
(voluntary_ctxt_switches in /proc): each time, something woke it afterwards.
Each test runs twice, with few messages and with many: the difference is what
messages cost, without connecting and the guests' own timers.

The main loop takes frames from the wire; a doorbell is served in the thread
of the virtual processor that rings it.  So the sender of an unreliable
datagram wakes nobody, and its receiver's main loop wakes at most once.  On a
reliable connection the sender is a receiver too, of the acknowledgements.
"""

from pathlib import Path
from typing import NamedTuple

from . import benchtable, setup
from .benchlab import lab
from .programs import perftest
from .util import step

NAME = "wakeups"
HELP = "how often a message wakes a thread of QEMU, of sender and receiver"


class Test(NamedTuple):
    name: str
    program: str
    options: str
    messages: int       # that each side sends in an iteration


TESTS = [
    Test("UD SEND, one way", "ib_send_bw", "-c UD", 1),
    Test("RC WRITE, one way", "ib_write_bw", "", 1),
    Test("RC SEND, one way", "ib_send_bw", "", 1),
    Test("RC WRITE, ping-pong", "ib_write_lat", "", 1),
]
SIZE = 64
# Of datagrams, perftest posts a receive for each at once: a QP takes so many.
FEW, MANY = 500, 4000
QUICK_FEW, QUICK_MANY = 100, 300


def switches(lab):
    """Voluntary context switches of the guests' QEMUs: guest -> kind -> n."""
    result = {}
    for guest in lab.guests:
        pid = lab.state[guest.name]["pid"]
        with guest.qmp() as qmp:
            cpus = [cpu["thread-id"] for cpu in qmp.execute("query-cpus-fast")]
        # Others come and go, and have no part in a message.
        result[guest.number] = {
            "main loop": _switches_of(pid, pid),
            "vCPUs": sum(_switches_of(pid, cpu) for cpu in cpus)}
    return result


def _switches_of(pid, thread):
    text = Path(f"/proc/{pid}/task/{thread}/status").read_text()
    return int(text.partition("\nvoluntary_ctxt_switches:")[2].split()[0])


def measure(bench, test, count):
    """Switches of each guest and kind for one run of count messages."""
    before = switches(bench.lab)
    perftest(bench, test.program, SIZE, test.options, count)
    after = switches(bench.lab)
    return {number: {kind: count - before[number][kind]
                     for kind, count in kinds.items()}
            for number, kinds in after.items()}


def measure_test(bench, test, few, many):
    """A row of the results."""
    low, high = measure(bench, test, few), measure(bench, test, many)
    row = {"test": test.name, "size": SIZE}
    for side, guest in (("sender", 2), ("receiver", 1)):
        for kind in ("main loop", "vCPUs"):
            row[f"{side} {kind}"] = round(
                (high[guest][kind] - low[guest][kind]) / (many - few), 3)
    return row


def show(data):
    columns = ("sender main loop", "sender vCPUs", "receiver main loop",
               "receiver vCPUs")
    print("\nwake-ups of QEMU's threads for each message")
    benchtable.show(["test", *columns],
                    [[row["test"], *(f"{row[key]:.3f}" for key in columns)]
                     for row in data["rows"]])
    print()


def run(options):
    setup.ensure(yes=options.yes)
    few, many = (QUICK_FEW, QUICK_MANY) if options.quick else (FEW, MANY)
    rows = []
    with lab("card") as bench:
        # The first connection wakes for what later ones find done.
        measure(bench, TESTS[0], QUICK_FEW)
        for test in TESTS:
            with step(test.name):
                rows.append(measure_test(bench, test, few, many))
    data = {"rows": rows}
    show(data)
    return data
