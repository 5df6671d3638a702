# SPDX-License-Identifier: GPL-2.0-or-later
"""Captures of the wire, and the command `vroce pcap`."""

import contextlib
import os
import shutil
import struct
import subprocess
import tempfile
import threading
import time
from pathlib import Path

from .lab import Lab, add_lab, between
from .labstate import stands_still
from .util import (Command, Interrupted, UserError, finish, output_file, say,
                   start)

PERIOD_SECONDS = 0.1
PCAP_HEADER_BYTES = 24
# A header as QEMU writes it: version 2.4, frames up to 64 KiB, of Ethernet.
EMPTY_PCAP = struct.pack("=IHHiIII", 0xa1b2c3d4, 2, 4, 0, 0, 65536, 1)


class Capture:
    """Context manager: writes the wire's frames, whole, into a pcap file.

    It listens at guest 1's end of the wire, which every frame passes (the
    wire of three and more guests is a hub).  With a limit it ends soon after
    the file has that many bytes.
    """

    def __init__(self, lab, path, limit=None):
        self.guest = lab.guest(1)
        self.path = Path(path).absolute()
        self.limit = limit
        self.id = f"capture-{os.getpid()}-{time.monotonic_ns()}"
        self.ended = threading.Event()

    def __enter__(self):
        try:
            self.path.open("wb").close()
        except OSError as error:
            raise UserError(f"cannot write {self.path}: {error.strerror}") \
                from None
        with self.guest.qmp() as qmp:
            qmp.execute("object-add", qom_type="filter-dump", id=self.id,
                        netdev="wire", file=str(self.path))
        self.watcher = threading.Thread(target=self._watch, daemon=True)
        self.watcher.start()
        return self

    def __exit__(self, *_exception):
        self.stop()

    def stop(self):
        """The file is complete when this returns."""
        self.ended.set()
        self.watcher.join()

    def _watch(self):
        while not self.ended.wait(PERIOD_SECONDS):
            if self.limit and self.path.stat().st_size > self.limit:
                break
        # The lab may have ended meanwhile; then there is nothing to stop.
        with contextlib.suppress(UserError), self.guest.qmp() as qmp:
            qmp.execute("object-del", id=self.id)


def tshark(*arguments):
    """The words of a tshark command; raises UserError if there is none."""
    if not shutil.which("tshark"):
        raise UserError("tshark is not installed: 'vroce setup' installs it; "
                        "'vroce pcap -w FILE' works without it")
    return ["tshark", "-n", *arguments]


def tshark_errors(text):
    """What tshark said that matters."""
    return "\n".join(line for line in text.splitlines()
                     if not line.startswith("Running as user")).strip()


def check_filter(text):
    """Raise UserError if text is no display filter of Wireshark's."""
    result = subprocess.run(tshark("-r", "-", "-Y", text), input=EMPTY_PCAP,
                            capture_output=True, check=False)
    if result.returncode:
        said = tshark_errors(result.stderr.decode(errors="replace"))
        raise UserError(f"'{text}' is no display filter of Wireshark's: "
                        + said.removeprefix("tshark: "))


def decode(path, *arguments):
    """tshark's output for a capture, as lines."""
    result = subprocess.run(tshark("-r", str(path), *arguments), text=True,
                            capture_output=True, errors="replace", check=False)
    # A capture that is still being written may end within a frame.
    if result.returncode and "cut short" not in result.stderr:
        raise UserError(f"tshark cannot decode {path}: "
                        + tshark_errors(result.stderr))
    return result.stdout.splitlines()


def join(paths, result):
    """Make one pcap file of several of QEMU's, in that order."""
    with open(result, "wb") as sink:
        for index, path in enumerate(paths):
            with open(path, "rb") as source:
                if index:
                    source.seek(PCAP_HEADER_BYTES)
                shutil.copyfileobj(source, sink)


def count_frames(path):
    """How many whole frames a file of QEMU's has."""
    count = 0
    with open(path, "rb") as file:
        file.seek(PCAP_HEADER_BYTES)
        while len(record := file.read(16)) == 16:
            file.seek(struct.unpack("=IIII", record)[2], os.SEEK_CUR)
            count += 1
    return count


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
    parser.add_argument("-w", "--write", metavar="FILE",
                        type=output_file,
                        help="write the frames to FILE instead of showing them "
                        "decoded")
    parser.add_argument("--boot", action="store_true",
                        help="what the lab captured when it was started (see "
                        "'up --capture') instead of what comes from now on")
    parser.add_argument("--seconds", metavar="S",
                        type=between(1, 1 << 30, "seconds"),
                        help="stop after that time (default: when interrupted)")
    parser.add_argument("-Y", "--filter", metavar="FILTER",
                        help="show only frames that pass this filter of "
                        "Wireshark's, as 'infiniband.bth.opcode == 4'")


def run(args):
    if args.write and args.filter:
        raise UserError("-Y chooses what is shown; -w writes every frame")
    lab = Lab.load(args.lab)
    words = []
    if args.filter:
        check_filter(args.filter)
        words = ["-Y", args.filter]
    if args.boot:
        return _boot(lab, args.write, words)
    if text := stands_still(lab.folder):
        say(text)
    end = time.monotonic() + args.seconds if args.seconds else None
    try:
        with lab.watch():
            if args.write:
                _write(lab, args.write, end)
            else:
                _show(lab, words, end)
    except Interrupted:
        if end:
            raise
        # Without a time limit this is how it ends.


def _boot(lab, file, words):
    path = lab.logs / "wire.pcap"
    if not path.exists():
        raise UserError(f"lab '{lab.name}' was started without a capture "
                        "(--capture 0)")
    if file:
        shutil.copyfile(path, file)
    else:
        print("\n".join(decode(path, *words)))


def _write(lab, path, end):
    with Capture(lab, path) as capture:
        try:
            say(f"capturing into {path}" + ("" if end else "; Ctrl-C ends it"))
            while (end is None or time.monotonic() < end) and lab.running():
                time.sleep(PERIOD_SECONDS)
        finally:
            capture.stop()
            say(f"{path}: {path.stat().st_size} bytes")


def _show(lab, words, end):
    with tempfile.TemporaryDirectory(prefix="vroce-pcap-") as folder:
        path = Path(folder) / "wire.pcap"
        with Capture(lab, path):
            # QEMU writes the file's header when it opens it.
            while path.stat().st_size < PCAP_HEADER_BYTES:
                time.sleep(PERIOD_SECONDS)
            child = start(tshark("-l", "-r", "-", *words),
                          stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)
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
