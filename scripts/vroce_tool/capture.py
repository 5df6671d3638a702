# SPDX-License-Identifier: GPL-2.0-or-later
"""Captures of the wire, and the command `vroce pcap`."""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from .lab import Lab, add_lab, between
from .util import Command, UserError, finish, say, start

ALL_BYTES = 65536
PERIOD_SECONDS = 0.1
PCAP_HEADER_BYTES = 24


class Capture:
    """Context manager: writes the wire's frames, whole, into a pcap file.

    It listens at guest 1's end of the wire, which every frame passes (the
    wire of three and more guests is a hub).
    """

    def __init__(self, lab, path, maxlen=ALL_BYTES):
        self.guest = lab.guest(1)
        self.path = Path(path).absolute()
        self.maxlen = maxlen
        self.id = f"capture-{os.getpid()}-{time.monotonic_ns()}"

    def __enter__(self):
        try:
            self.path.open("wb").close()
        except OSError as error:
            raise UserError(f"cannot write {self.path}: {error.strerror}") \
                from None
        with self.guest.qmp() as qmp:
            qmp.execute("object-add", qom_type="filter-dump", id=self.id,
                        netdev="wire", file=str(self.path), maxlen=self.maxlen)
        return self

    def __exit__(self, *_exception):
        # The lab may have ended meanwhile; then there is nothing to stop.
        with contextlib.suppress(UserError), self.guest.qmp() as qmp:
            qmp.execute("object-del", id=self.id)


def tshark(*arguments):
    """The words of a tshark command; raises UserError if there is none."""
    if not shutil.which("tshark"):
        raise UserError("tshark is not installed: 'vroce setup' installs it; "
                        "'vroce pcap -w FILE' works without it")
    return ["tshark", "-n", *arguments]


def decode(path, display_filter=None, count=None):
    """One line of text for each frame of a capture that passes the filter."""
    command = tshark("-r", str(path))
    if display_filter:
        command += ["-Y", display_filter]
    result = subprocess.run(command, capture_output=True, text=True,
                            errors="replace", check=False)
    # A capture that is still being written may end within a frame.
    if result.returncode and "cut short" not in result.stderr:
        raise UserError(f"tshark cannot decode {path}: {result.stderr.strip()}")
    lines = result.stdout.splitlines()
    return lines[:count]


def follow(path, sink, until):
    """Copy a growing file into sink (binary) until until() or a closed sink."""
    with open(path, "rb") as file:
        while not until():
            data = file.read(1 << 20)
            if data:
                sink.write(data)
                sink.flush()
            else:
                time.sleep(PERIOD_SECONDS)


def add_arguments(parser):
    add_lab(parser)
    parser.add_argument("-w", "--write", metavar="FILE", type=Path,
                        help="write whole frames to FILE instead of showing "
                        "them decoded")
    parser.add_argument("--boot", action="store_true",
                        help="what the lab has captured since it was started "
                        "(headers only, see 'up --snaplen'), not from now on")
    parser.add_argument("--seconds", metavar="S", type=between(1, 1 << 30, "seconds"),
                        help="stop after that time (default: when interrupted)")
    parser.add_argument("-Y", "--filter", metavar="FILTER",
                        help="show only frames that pass this filter of "
                        "Wireshark's, as 'infiniband.bth.opcode == 4'")


def run(args):
    lab = Lab.load(args.lab)
    if args.boot:
        return _boot(lab, args)
    end = time.monotonic() + args.seconds if args.seconds else None
    with lab.watch():
        if args.write:
            _write(lab, args.write, end)
        else:
            _show(lab, args.filter, end)


def _boot(lab, args):
    path = lab.logs / "wire.pcap"
    if not path.exists():
        raise UserError(f"lab '{lab.name}' was started without a capture "
                        "(--snaplen 0)")
    if args.write:
        shutil.copyfile(path, args.write)
    else:
        print("\n".join(decode(path, args.filter)))


def _write(lab, path, end):
    with Capture(lab, path):
        say(f"capturing into {path}"
            + ("" if end else "; Ctrl-C ends it"))
        while (end is None or time.monotonic() < end) and lab.running():
            time.sleep(PERIOD_SECONDS)
    say(f"{path}: {path.stat().st_size} bytes")


def _show(lab, display_filter, end):
    command = tshark("-l", "-r", "-")
    if display_filter:
        command += ["-Y", display_filter]
    with tempfile.TemporaryDirectory(prefix="vroce-pcap-") as folder:
        path = Path(folder) / "wire.pcap"
        with Capture(lab, path, maxlen=512):
            # QEMU writes the file's header when it opens it.
            while path.stat().st_size < PCAP_HEADER_BYTES:
                time.sleep(PERIOD_SECONDS)
            child = start(command, stdin=subprocess.PIPE, stderr=sys.stderr)
            try:
                follow(path, child.stdin, lambda: child.poll() is not None
                       or not lab.running()
                       or end is not None and time.monotonic() > end)
                child.stdin.close()
                child.wait(10)
            except BrokenPipeError:
                pass
            finally:
                finish(child)


COMMANDS = [
    Command("pcap", "the frames on the wire", add_arguments, run,
            "Show the frames on the wire from now on, decoded by tshark, or "
            "write them to a file."),
]
