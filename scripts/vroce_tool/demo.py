# SPDX-License-Identifier: GPL-2.0-or-later
"""The command `vroce demo`: two guests exchange RDMA, from nothing to a table."""

import csv
import json
import time
from typing import Callable, NamedTuple

from . import programs, setup
from .capture import Capture, count_frames, decode, join
from .e2e import Bench
from .lab import Lab, Starter, lab_name, up_options
from .oops import ConsoleWatch
from .util import (Command, UserError, cache_dir, elapsed, output_file,
                   publish, say, scratch, step, write_atomic)

LAB = "demo"
SHOWN_FRAMES = 4
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

# Whose first packets are shown, and the BTH opcodes of its requests (IBA 9.2,
# table 38).
OPERATIONS = {
    "ibv_ud_pingpong": ("UD SEND", {0x64}),
    "64 MiB by SEND, checked": ("RC SEND", set(range(0x00, 0x06))),
    "64 MiB by WRITE, checked": ("RC WRITE", set(range(0x06, 0x0c))),
    "64 MiB by READ, checked": ("RC READ", {0x0c}),
}
ACKNOWLEDGE = {0x11}
FIELDS = ("frame.number", "frame.time_relative", "ip.src", "ip.dst",
          "infiniband.bth.opcode", "infiniband.bth.psn", "frame.len",
          "_ws.col.Info")


class Outcome(NamedTuple):
    name: str
    status: str
    seconds: float
    figures: dict
    message: str = ""


def add_arguments(parser):
    parser.add_argument("--json", metavar="FILE", type=output_file,
                        help="write the results as data")
    parser.add_argument("--yes", "-y", action="store_true",
                        help="install missing host packages without asking")
    parser.add_argument("--lab", metavar="NAME", type=lab_name, default=LAB,
                        help=f"the name of the lab (default: {LAB})")
    parser.add_argument("--rxe", metavar="K", type=int, action="append",
                        help="guest K is a stock soft-RoCE peer, see 'up'")
    parser.add_argument("--pcap", metavar="FILE", type=output_file,
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
        first, starts = _run_steps(lab, outcomes, began, pcap)
    finally:
        if lab and not args.keep:
            lab.stop()
        if args.json:
            _write(args.json, outcomes)
    _show_packets(pcap, starts)
    _show_table(outcomes)
    if first is not None:
        print(f"first RDMA traffic {elapsed(first)} after the start; all of "
              f"it took {elapsed(time.monotonic() - began)}")
    print(f"capture of the wire: {pcap}")
    if args.keep:
        where = Lab(args.lab).option
        print(f"the guests run on: 'vroce ssh{where} 1', "
              f"'vroce down{where}'")
    return 1 if any(outcome.status == "fail" for outcome in outcomes) else 0


def _prepare(options, args, outcomes):
    """Set up and boot, each an outcome of its own; returns the lab."""
    began = time.monotonic()
    artifacts = setup.ensure(yes=args.yes)
    outcomes.append(Outcome("set up", "pass", time.monotonic() - began, {}))
    began = time.monotonic()
    lab = Starter(options, artifacts).start(keep_logs=True)
    outcomes.append(Outcome("boot two guests", "pass",
                            time.monotonic() - began,
                            {"accelerator": options.accel}))
    return lab


def _run_steps(lab, outcomes, start, pcap):
    """Run all steps, also after one that failed, and write their capture.

    Returns the seconds from start until RDMA traffic was seen to work (or
    None), and a dict of the step's names to the frames before it in pcap.
    """
    first, frames, starts, captures = None, 0, {}, []
    with scratch("demo") as folder:
        bench = Bench(lab, folder)
        for one in STEPS:
            captures.append(folder / f"{len(captures)}.pcap")
            outcomes.append(_run_step(one, bench, captures[-1]))
            starts[one.name] = frames
            frames += count_frames(captures[-1])
            if one.name == FIRST_RDMA and outcomes[-1].status == "pass":
                first = time.monotonic() - start
        join(captures, folder / "demo.pcap")
        publish(folder / "demo.pcap", pcap)
    return first, starts


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


def first_frames(frames, start, opcodes):
    """After frame number start: the first request with one of the opcodes and
    the frames that follow it, with its acknowledge if there is one."""
    def opcode(frame):
        return int(frame["infiniband.bth.opcode"].split(",")[0], 0)

    frames = [frame for frame in frames if int(frame["frame.number"]) > start]
    while frames and opcode(frames[0]) not in opcodes:
        frames.pop(0)
    shown, rest = frames[:SHOWN_FRAMES], frames[SHOWN_FRAMES:]
    acknowledged = any(opcode(frame) in ACKNOWLEDGE for frame in shown)
    if frames and opcode(frames[0]) != 0x64 and not acknowledged:
        shown += [frame for frame in rest if opcode(frame) in ACKNOWLEDGE][:1]
    return shown


def _show_packets(pcap, starts):
    with step("decoding the capture"):
        frames = read_frames(pcap)
    for name, (operation, opcodes) in OPERATIONS.items():
        print(f"\n{operation}: first packets of '{name}'")
        for frame in first_frames(frames, starts[name], opcodes):
            print(f"  {frame['frame.number']:>6} "
                  f"{float(frame['frame.time_relative']):10.6f} "
                  f"{frame['ip.src']} > {frame['ip.dst']} "
                  f"{frame['frame.len']:>5} bytes  "
                  f"PSN {frame['infiniband.bth.psn']:>8}  "
                  f"{frame['_ws.col.Info'].strip()}")


def _show_table(outcomes):
    rows = [(outcome.name, outcome.status, elapsed(outcome.seconds),
             programs.describe(outcome.figures))
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
