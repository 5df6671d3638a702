# SPDX-License-Identifier: GPL-2.0-or-later
"""The kinds of wire between two QEMUs on one host, beside each other."""

import contextlib
import subprocess
import time

from . import benchtable, programs, setup, wire
from .benchlab import attempt, freeze, lab
from .util import UserError, finish, scratch, start, step

NAME = "netdevs"
HELP = "the wire as dgram over a socketpair, as stream and as vde"

RUNS = 3
SWITCH_SECONDS = 5
# What is measured: name, program, bytes, unit, messages, messages if quick.
TESTS = [("ib_write_bw", 65536, "MiB/s", 3000, 50),
         ("ib_read_bw", 65536, "MiB/s", 2000, 50),
         ("ib_write_bw", 64, "MiB/s", 20000, 200),
         ("ib_write_lat", 8, "us", 3000, 100)]


@contextlib.contextmanager
def dgram(_folder):
    yield wire.plan(2)


@contextlib.contextmanager
def stream(folder):
    """One QEMU listens, the other connects as soon as it can."""
    common = f"stream,id=wire,addr.type=unix,addr.path={folder}/wire"
    yield wire.Wire([], [f"{common},server=on",
                         f"{common},server=off,reconnect-ms=50"],
                    [[], []], None, [])


@contextlib.contextmanager
def vde(folder):
    """A VDE switch between them, which is a process of its own."""
    socket = folder / "switch"
    # It ends when its standard input does.
    switch = start(["vde_switch", "--sock", socket],
                   stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + SWITCH_SECONDS
        while not (socket / "ctl").exists():
            if switch.poll() is not None or time.monotonic() > deadline:
                raise UserError("vde_switch did not start; it is in the "
                                "package vde2")
            time.sleep(0.05)
        yield wire.Wire([], [f"vde,id=wire,sock={socket}"] * 2, [[], []],
                        None, [])
    finally:
        finish(switch)


KINDS = {"dgram": dgram, "stream": stream, "vde": vde}
# What vde_switch carries: longer frames are lost in it.
VDE_MTU = 1500


def prepare(kind, bench):
    """Give the guests the MTU that their wire carries; returns it."""
    if kind != "vde":
        return wire.MTU
    for guest in bench.lab.guests:
        guest.connect()
        guest.run(f"ip link set {guest.rdma()['netdev']} mtu {VDE_MTU}")
    return VDE_MTU


def measure(bench, program, size, unit, count):
    if unit == "us":
        return programs.latency(bench, program, size, count=count)[
            "us typical"]
    return programs.bandwidth(bench, program, size, count=count)["MiB/s"]


def show(data):
    kinds = [key for key in data["rows"][0] if key in KINDS]
    print()
    benchtable.show(
        ["test", "size", "unit",
         *(f"{kind} (MTU {data['mtu'][kind]})" for kind in kinds)],
        [[row["test"], benchtable.size(row["size"]), row["unit"],
          *(benchtable.number(row[kind]) for kind in kinds)]
         for row in data["rows"]])
    print()


def failures(data):
    """Where the card failed, on whatever wire."""
    return [f"{row['test']} over {kind}" for row in data["rows"]
            for kind in KINDS if row[kind] is None]


def measure_test(test, benches, runs, quick):
    """A row of the results; what fails is said, and has no figure."""
    program, size, unit, many, few = test
    title = f"{program} {benchtable.size(size)}"
    figures = {kind: [] for kind in benches}
    with step(title):
        for _ in range(runs):
            for kind, bench in benches.items():
                figure = attempt(title, kind, bench, measure, program, size,
                                 unit, few if quick else many)
                if figure is not None:
                    figures[kind].append(figure)
    best = min if unit == "us" else max
    return {"test": program, "size": size, "unit": unit,
            **{kind: best(figures[kind], default=None) for kind in benches},
            "runs": figures}


def run(options):
    setup.ensure(yes=options.yes)
    runs = options.runs or (1 if options.quick else RUNS)
    mtu = {}
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(scratch("netdevs"))
        benches = {}
        for kind, make in KINDS.items():
            cable = stack.enter_context(make(folder))
            benches[kind] = stack.enter_context(lab(kind, wire=cable))
            mtu[kind] = prepare(kind, benches[kind])
            freeze(benches[kind])
        rows = [measure_test(test, benches, runs, options.quick)
                for test in TESTS]
    data = {"mtu": mtu, "rows": rows}
    show(data)
    return data
