# SPDX-License-Identifier: GPL-2.0-or-later
"""The command `vroce demo`: two guests exchange RDMA, from nothing to a table."""

import csv
import json
import time
from pathlib import Path
from typing import Callable, NamedTuple

from . import programs, setup
from .capture import Capture, decode, join
from .e2e import Bench
from .guest import CARD
from .lab import DEFAULT_NAME, Lab, Starter, lab_name, up_options
from .oops import ConsoleWatch
from .util import (Command, UserError, cache_dir, elapsed, publish, say,
                   scratch, step, write_atomic)

LAB = "demo"
SHOWN_FRAMES = 5
# Of each step, the first frames are enough, and bandwidths are not disturbed.
CAPTURED_BYTES = 2 << 20


class Step(NamedTuple):
    name: str
    run: Callable       # run(bench) returns figures or raises AssertionError


STEPS = [
    Step("ping over the card's Ethernet", programs.ping),
    Step("ibv_devinfo", programs.devinfo),
    Step("ibv_rc_pingpong", programs.pingpong),
    Step("ibv_ud_pingpong",
         lambda bench: programs.pingpong(bench, "ud", size=1024)),
    Step("rping, validating", programs.rping),
    Step("ib_write_bw 64 KiB",
         lambda bench: programs.bandwidth(bench, "ib_write_bw")),
    Step("ib_read_bw 64 KiB",
         lambda bench: programs.bandwidth(bench, "ib_read_bw")),
    Step("ib_send_bw 64 KiB",
         lambda bench: programs.bandwidth(bench, "ib_send_bw")),
    Step("ib_write_lat 8 B",
         lambda bench: programs.latency(bench, "ib_write_lat")),
    Step("64 MiB by SEND, checked", lambda bench: programs.xfer(bench, "send")),
    Step("64 MiB by WRITE, checked",
         lambda bench: programs.xfer(bench, "write")),
    Step("64 MiB by READ, checked", lambda bench: programs.xfer(bench, "read")),
]
FIRST_RDMA = "ibv_rc_pingpong"

# Operations by the BTH opcodes of their requests (IBA 9.2, table 38).
OPERATIONS = [
    ("UD SEND (ibv_ud_pingpong)", {0x64}),
    ("RC SEND", set(range(0x00, 0x06))),
    ("RC WRITE", set(range(0x06, 0x0c))),
    ("RC READ", {0x0c}),
]
FIELDS = ("frame.number", "frame.time_relative", "ip.src", "ip.dst",
          "infiniband.bth.opcode", "_ws.col.Info")


class Outcome(NamedTuple):
    name: str
    status: str
    seconds: float
    figures: dict
    message: str = ""


def add_arguments(parser):
    parser.add_argument("--json", metavar="FILE", type=Path,
                        help="write the results as data")
    parser.add_argument("--yes", "-y", action="store_true",
                        help="install missing host packages without asking")
    parser.add_argument("--lab", metavar="NAME", type=lab_name, default=LAB,
                        help=f"the name of the lab (default: {LAB})")
    parser.add_argument("--rxe", metavar="K", type=int, action="append",
                        help="guest K is a stock soft-RoCE peer, see 'up'")
    parser.add_argument("--pcap", metavar="FILE", type=Path,
                        help="where to leave the capture (default: demo.pcap "
                        "in the cache)")
    parser.add_argument("--keep", action="store_true",
                        help="leave the guests running")
    parser.add_argument("--dry-run", action="store_true",
                        help="print what would run, start nothing")


def run(args):
    options = up_options(2, lab=args.lab, rxe=args.rxe, capture=0)
    if args.dry_run:
        Starter(options, setup.planned()).dry_run()
        for one in STEPS:
            print(f"# {one.name}")
        return 0
    if Lab(args.lab).running():
        raise UserError(f"lab '{args.lab}' is already running: stop it with "
                        f"'vroce down --lab {args.lab}', or choose another "
                        "name with --lab")
    pcap = (args.pcap or cache_dir() / "demo.pcap").absolute()
    began = time.monotonic()
    outcomes = []
    lab = None
    try:
        lab = _prepare(options, args, outcomes)
        first = _run_steps(lab, outcomes, began, pcap)
    finally:
        if lab and not args.keep:
            lab.stop()
        if args.json:
            _write(args.json, outcomes)
    _show_packets(pcap)
    _show_table(outcomes)
    if first is not None:
        print(f"first RDMA traffic {elapsed(first)} after the start; all of "
              f"it took {elapsed(time.monotonic() - began)}")
    print(f"capture of the wire: {pcap}")
    if args.keep:
        where = "" if args.lab == DEFAULT_NAME else f" --lab {args.lab}"
        print(f"the guests run on: 'vroce ssh{where} 1', "
              f"'vroce down{where}'")
    return 1 if any(outcome.status == "fail" for outcome in outcomes) else 0


def _prepare(options, args, outcomes):
    """Set up and boot, each an outcome of its own; returns the lab."""
    began = time.monotonic()
    artifacts = setup.ensure(yes=args.yes)
    outcomes.append(Outcome("set up", "pass", time.monotonic() - began, {}))
    began = time.monotonic()
    lab = Starter(options, artifacts).start()
    outcomes.append(Outcome("boot two guests", "pass",
                            time.monotonic() - began,
                            {"accelerator": options.accel}))
    return lab


def _run_steps(lab, outcomes, start, pcap):
    """Run all steps, also after one that failed; returns the seconds from
    start until RDMA traffic was seen to work, or None."""
    first = None
    captures = []
    with scratch("demo") as folder:
        bench = Bench(lab, folder)
        for one in STEPS:
            captures.append(folder / f"{len(captures)}.pcap")
            outcome = _run_step(one, bench, captures[-1])
            outcomes.append(outcome)
            if one.name == FIRST_RDMA and outcome.status == "pass":
                first = time.monotonic() - start
        join(captures, folder / "demo.pcap")
        publish(folder / "demo.pcap", pcap)
    return first


def _run_step(one, bench, pcap):
    began = time.monotonic()
    status, figures, message = "pass", {}, ""
    with ConsoleWatch(bench.lab.guests) as watch:
        try:
            with step(one.name), Capture(bench.lab, pcap, CAPTURED_BYTES):
                figures = one.run(bench)
        except (AssertionError, UserError) as error:
            status, message = "fail", str(error)
        if watch.check() and status == "pass":
            status = "fail"
            message = f"a guest's kernel reports: {watch.reports[0][1]}"
    if message:
        say(f"{one.name} failed: {message}")
    return Outcome(one.name, status, time.monotonic() - began, figures, message)


def _write(path, outcomes):
    steps = [{"name": outcome.name, "status": outcome.status,
              "seconds": round(outcome.seconds, 3), "figures": outcome.figures,
              **({"message": outcome.message} if outcome.message else {})}
             for outcome in outcomes]
    write_atomic(path.absolute(), json.dumps({"steps": steps}, indent=2) + "\n")


# ------------------------------------------------------------------- output

def read_frames(pcap):
    """The RoCEv2 frames of a capture, as dicts of FIELDS."""
    words = [word for field in FIELDS for word in ("-e", field)]
    lines = decode(pcap, "-Y", "infiniband", "-T", "fields", "-E",
                   "separator=,", "-E", "quote=d", *words)
    return [dict(zip(FIELDS, row)) for row in csv.reader(lines)
            if len(row) == len(FIELDS) and row[4]]


def first_frames(frames, opcodes, count=SHOWN_FRAMES):
    """The first request with one of the opcodes, and the frames after it."""
    for index, frame in enumerate(frames):
        # A frame with several BTHs in one would list several opcodes.
        if int(frame["infiniband.bth.opcode"].split(",")[0], 0) in opcodes:
            return frames[index:index + count]
    return []


def _show_packets(pcap):
    with step("decoding the capture"):
        frames = read_frames(pcap)
    for name, opcodes in OPERATIONS:
        print(f"\n{name}: first packets")
        for frame in first_frames(frames, opcodes):
            print(f"  {frame['frame.number']:>7} "
                  f"{float(frame['frame.time_relative']):11.6f} "
                  f"{frame['ip.src']} > {frame['ip.dst']} "
                  f"{frame['_ws.col.Info']}")


def _show_table(outcomes):
    rows = [(outcome.name, outcome.status, elapsed(outcome.seconds),
             ", ".join(f"{value} {name}" if isinstance(value, (int, float))
                       else f"{name} {value}"
                       for name, value in outcome.figures.items()))
            for outcome in outcomes]
    rows.insert(0, ("step", "status", "time", "figures"))
    widths = [max(len(row[i]) for row in rows) for i in range(3)]
    print()
    for row in rows:
        print(f"{row[0]:<{widths[0]}}  {row[1]:<{widths[1]}}  "
              f"{row[2]:>{widths[2]}}  {row[3]}".rstrip())
    print()


COMMANDS = [
    Command("demo", "set up, boot two guests, exchange RDMA, show it",
            add_arguments, run,
            "Set up what is missing, boot two guests on one wire, exchange "
            "RDMA in the usual ways, and show what happened."),
]
