# SPDX-License-Identifier: GPL-2.0-or-later
"""The engine alone, and its wire edge alone: no guest, no QEMU.

Time is of one processor that plays both sides.  Instructions are counted by
callgrind: those of the engine's own functions for each message, and beside
them those of copies and checksums.  They repeat exactly where compiler and
libraries are the same, so they can be compared across machines that do
something else as well; times can only be compared as ratios of one run.
"""

import json
import platform
import re
import shutil
from pathlib import Path
from typing import NamedTuple

from . import benchtable, hostbuild, hostpkgs
from .util import REPO, UserError, run, say, scratch, step, write_atomic

REFERENCE = REPO / "tests" / "bench" / "reference.json"
TOLERANCE_PERCENT = 3.0

LINKS = ("wire", "ref")
OPS = ("WRITE", "SEND", "READ")
SIZES = (8, 4096, 65536, 1 << 20)
QPS = (1, 10, 100, 1000, 10000)
QUICK_SIZES, QUICK_QPS = (8, 65536), (1, 100)
SECONDS, QUICK_SECONDS = 0.3, 0.02
RUNS = 3
# What callgrind looks at, fifty times slower: messages of each size, but no
# fewer than two a QP.
COUNTED = {8: 2000, 4096: 1000, 65536: 160, 1 << 20: 32}
MAX_COUNTED_BYTES = 256 << 20

ENGINE_FOLDER = "/qemu-device/engine/"
DATA = re.compile(r"mem(cpy|move)|libdeflate|crc32")


def program(name):
    """One of the programs of tests/bench, up to date."""
    folder = hostbuild.build(hostbuild.PROFILED, f"tests/bench/{name}",
                             what="the benchmark")
    return folder / "tests" / "bench" / name


def machine():
    """What the figures depend on, and of which commit they are."""
    cpu = re.search(r"^model name\s*: (.*)$",
                    Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    try:
        commit = run(["git", "-C", REPO, "rev-parse", "--short", "HEAD"])
    except UserError:
        commit = "unknown"      # of a checkout without its history
    return {"commit": commit.strip(),
            "cpu": cpu[1] if cpu else platform.machine(),
            "compiler": run(["cc", "--version"]).splitlines()[0],
            "kernel": platform.release()}


# ------------------------------------------------------------------- times

class Key(NamedTuple):
    link: str
    op: str
    qps: int
    size: int


def parse(text):
    """Lines of the program bench, as {Key: (messages, seconds, frames)}."""
    figures = {}
    for line in text.splitlines():
        link, op, qps, size, messages, seconds, frames = line.split()
        figures[Key(link, op, int(qps), int(size))] = (
            int(messages), float(seconds), int(frames))
    return figures


def measure_times(bench, qps, sizes, runs, seconds):
    """The best of several runs: {Key: (ns a message, frames a second)}."""
    best = {}
    for _ in range(runs):
        for link in LINKS:
            for number in qps:
                output = run([bench, link, number, ",".join(OPS),
                              ",".join(f"{size}:{seconds:f}"
                                       for size in sizes)])
                for key, (done, took, frames) in parse(output).items():
                    figure = (took * 1e9 / done, frames / took)
                    best[key] = min(best.get(key, figure), figure)
    return best


# ------------------------------------------------------------ instructions

def read_callgrind(path):
    """Self cost in a dump, as (of the engine, of copies and CRCs)."""
    names, engine, data = {"fl": {}, "fn": {}}, 0, 0
    file = function = ""
    skip = False
    entry = re.compile(r"(fl|fn|fi|fe|cfi|cfn)=\((\d+)\)(?: (.*))?")
    for line in path.read_text().splitlines():
        match = entry.match(line)
        if match:
            kind, number, name = match.groups()
            table = names["fn" if kind.endswith("fn") else "fl"]
            if name is not None:
                table[number] = name
            if kind == "fl":
                file = table[number]
            elif kind == "fn":
                function = table[number]
        elif line.startswith("calls="):
            skip = True         # the next line is the cost of what is called
        elif line[:1].isdigit() or line[:1] in "+-*":
            if not skip:
                words = line.split()        # a cost of zero is left out
                cost = int(words[1]) if len(words) > 1 else 0
                if ENGINE_FOLDER in file:
                    engine += cost
                elif DATA.search(function):
                    data += cost
            skip = False
    return engine, data


def counted(size, qps):
    """How many messages callgrind is to see."""
    return min(max(COUNTED[size], 2 * qps),
               max(32, MAX_COUNTED_BYTES // size))


def measure_instructions(bench, link, qps, sizes):
    """{Key: (instructions of the engine, of copies and CRCs) a message}."""
    result = {}
    amounts = ",".join(f"{size}:{counted(size, qps)}" for size in sizes)
    with scratch("callgrind") as folder:
        output = run(
            ["valgrind", "--tool=callgrind", "--collect-atstart=no",
             "--toggle-collect=measured", "--zero-before=measured",
             "--dump-after=measured", f"--callgrind-out-file={folder}/out",
             bench, link, qps, ",".join(OPS), amounts], what="callgrind")
        # Valgrind writes lines of its own between those of the program.
        figures = parse("\n".join(line for line in output.splitlines()
                                  if re.match(rf"{link} \w+ \d+ ", line)))
        for number, (key, (done, *_)) in enumerate(figures.items(), 1):
            engine, data = read_callgrind(folder / f"out.{number}")
            if not engine:
                raise UserError("callgrind saw nothing of the engine: is "
                                f"{bench} built with debug information?")
            result[key] = (round(engine / done, 1), round(data / done, 1))
    return result


# ----------------------------------------------------------------- results

def growth(rows, field):
    """How many times more the most expensive number of QPs costs than one."""
    worst = {}
    for row in rows:
        one = next((other[field] for other in rows
                    if other["qps"] == 1 and all(
                        other[key] == row[key]
                        for key in ("link", "op", "size"))), None)
        if one and row.get(field):
            key = (row["link"], row["op"], row["size"])
            worst[key] = max(worst.get(key, 1.0), row[field] / one)
    return worst


def changed(name, now, before, tolerance):
    """A sentence if a figure differs by more than tolerance percent."""
    percent = 100 * (now - before) / before
    if abs(percent) <= tolerance:
        return None
    return (f"{name}: {benchtable.number(now)} instead of "
            f"{benchtable.number(before)} ({percent:+.1f} %)")


def reference(name):
    try:
        return json.loads(REFERENCE.read_text())[name]
    except (OSError, ValueError, KeyError):
        raise UserError(f"{REFERENCE} has no '{name}': write it by 'vroce "
                        f"bench {name} --save' at a good commit") from None


def save(name, data):
    """Make data the reference of a benchmark; a line for each row."""
    try:
        everything = json.loads(REFERENCE.read_text())
    except FileNotFoundError:
        everything = {}
    everything[name] = data
    text = json.dumps(everything, indent=1)
    # Objects that hold no other are one line.
    text = re.sub(r"\{[^{}\[\]]*\}",
                  lambda match: " ".join(match[0].split()), text)
    write_atomic(REFERENCE, text + "\n")


class Engine:
    """The benchmark `engine`."""

    NAME = "engine"
    HELP = ("messages a second and instructions a message of the engine, over "
            "frames and by reference, with 1 to 10,000 QPs")

    @classmethod
    def run(cls, options):
        if not shutil.which("valgrind"):
            hostpkgs.ensure(options.yes, ["valgrind"])
        bench = program("bench")
        qps, sizes = (QUICK_QPS, QUICK_SIZES) if options.quick \
            else (QPS, SIZES)
        with step("times"):
            times = measure_times(
                bench, qps, sizes,
                options.runs or (1 if options.quick else RUNS),
                QUICK_SECONDS if options.quick else SECONDS)
        rows = []
        for link in LINKS:
            for number in qps:
                with step(f"instructions, {link}, {number} QPs"):
                    counts = measure_instructions(bench, link, number, sizes)
                for key, (engine, data) in counts.items():
                    ns, frames = times[key]
                    rows.append({**key._asdict(), "instructions": engine,
                                 "data_instructions": data,
                                 "ns": round(ns, 1),
                                 "messages_s": round(1e9 / ns),
                                 "frames_s": round(frames)})
        data = {"machine": machine(), "rows": rows}
        cls.show(data)
        return data

    @staticmethod
    def show(data):
        print()
        benchtable.show(
            ["link", "op", "QPs", "size", "instr/msg", "copy+CRC", "ns/msg",
             "msg/s", "frames/s"],
            [[row["link"], row["op"], row["qps"], benchtable.size(row["size"]),
              f"{row['instructions']:.0f}", f"{row['data_instructions']:.0f}",
              f"{row['ns']:.0f}", row["messages_s"], row["frames_s"] or "-"]
             for row in data["rows"]])
        for field, what in (("instructions", "instructions"),
                            ("ns", "nanoseconds")):
            (link, op, size), worst = max(
                growth(data["rows"], field).items(), key=lambda item: item[1])
            print(f"{what} a message, the most expensive number of QPs over "
                  f"one: at most {worst:.2f} times ({link}, {op}, "
                  f"{benchtable.size(size)})")
        print()

    @classmethod
    def compare(cls, data, tolerance):
        """Say what changed against the reference; 1 if something got worse."""
        known = {tuple(row[field] for field in Key._fields): row
                 for row in reference(cls.NAME)["rows"]}
        worse = False
        for row in data["rows"]:
            key = Key(*(row[field] for field in Key._fields))
            if key not in known:
                continue
            for field in ("instructions", "data_instructions"):
                if not known[key][field]:
                    continue
                text = changed(
                    f"{key.link} {key.op} {key.qps} QPs "
                    f"{benchtable.size(key.size)}, {field}", row[field],
                    known[key][field], tolerance)
                if text:
                    say(text)
                    worse |= row[field] > known[key][field]
        say("some figures got worse" if worse else
            f"no figure is more than {tolerance:g} % worse than the "
            "reference's")
        return int(worse)


class Wire:
    """The benchmark `wire`."""

    NAME = "wire"
    HELP = ("frames a second of the wire edge: cut, gathered and with their "
            "ICRC; checked and parsed")

    @classmethod
    def run(cls, options):
        bench = program("bench-wire")
        seconds = QUICK_SECONDS if options.quick else SECONDS
        best = {}
        with step("memcpy"):
            memcpy = benchtable.memcpy_gib_s()
        with step("frames"):
            for _ in range(options.runs or (1 if options.quick else RUNS)):
                for line in run([bench, f"{seconds:f}"]).splitlines():
                    way, payload, frames, took = line.split()
                    key = way, int(payload)
                    best[key] = max(best.get(key, 0),
                                    int(frames) / float(took))
        data = {"machine": machine(), "memcpy_gib_s": memcpy, "rows": [
            {"direction": way, "payload": payload, "frames_s": round(rate),
             "gib_s": round(rate * payload / (1 << 30), 3)}
            for (way, payload), rate in best.items()]}
        print(f"\nmemcpy of the host: {memcpy} GiB/s")
        benchtable.show(
            ["direction", "payload", "frames/s", "GiB/s"],
            [[row["direction"], benchtable.size(row["payload"]),
              row["frames_s"], benchtable.number(row["gib_s"])]
             for row in data["rows"]])
        print()
        return data

    @classmethod
    def compare(cls, data, tolerance):
        """Compare what a frame costs beside a memcpy of its payload."""
        def costs(result):
            return {(row["direction"], row["payload"]):
                    row["gib_s"] / result["memcpy_gib_s"]
                    for row in result["rows"]}
        before, worse = costs(reference(cls.NAME)), False
        for key, now in costs(data).items():
            text = changed(f"{key[0]} {benchtable.size(key[1])}, rate over "
                           "memcpy's", now, before[key], tolerance)
            if text:
                say(text)
                worse |= now < before[key]
        say("some figures got worse" if worse else
            f"no figure is more than {tolerance:g} % worse than the "
            "reference's")
        return int(worse)
