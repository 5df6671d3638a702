# SPDX-License-Identifier: GPL-2.0-or-later
"""Watches the guests' serial consoles and reports a kernel's complaint."""

import os
import re
import sys
import threading

# The first line of each kind of report of the kernel's.
TROUBLE = re.compile(
    r"BUG: |\bBUG\b.*\bat\b|Oops\b|kernel BUG at|Kernel panic|WARNING: |"
    r"general protection fault|Unable to handle kernel|KFENCE: |UBSAN: |"
    r"rcu: INFO: .* stall|soft lockup|blocked for more than \d+ seconds|"
    r"double free|Redzone|Object already free|invalid opcode: ")
END = re.compile(r"---\[ end |Rebooting in")
REPORT_LINES = 80
PERIOD_SECONDS = 0.3


class ConsoleWatch:
    """Context manager: reports troubles from now on, as they are printed.

    reports: what was seen, as (guest number, first line).
    """

    def __init__(self, guests, from_start=False, stream=None):
        self.reports = []
        self.stream = stream or sys.stderr
        self.stop = threading.Event()
        self.tails = [_Tail(guest, from_start) for guest in guests]
        self.thread = threading.Thread(target=self._loop, daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_exception):
        self.stop.set()
        self.thread.join()

    def check(self):
        """Look now; returns whether there has been a report."""
        for tail in self.tails:
            for line in tail.lines():
                self._line(tail, line)
        return bool(self.reports)

    def _loop(self):
        while not self.stop.wait(PERIOD_SECONDS):
            self.check()
        self.check()

    def _line(self, tail, line):
        if not tail.left:
            if not TROUBLE.search(line):
                return
            tail.left = REPORT_LINES
            self.reports.append((tail.guest.number, line))
            print(f"vroce: guest {tail.guest.number}: the kernel reports "
                  "trouble:", file=self.stream)
        tail.left -= 1
        print(f"  [{tail.guest.number}] {line}", file=self.stream, flush=True)
        if END.search(line):
            tail.left = 0


class _Tail:
    """The complete lines that were added to a guest's console log."""

    def __init__(self, guest, from_start):
        self.guest = guest
        self.left = 0
        self.rest = b""
        self.position = 0
        self.mutex = threading.Lock()
        if not from_start and guest.log("console").exists():
            self.position = guest.log("console").stat().st_size

    def lines(self):
        with self.mutex:
            try:
                with open(self.guest.log("console"), "rb") as file:
                    if os.fstat(file.fileno()).st_size < self.position:
                        # The guest was booted again.
                        self.position, self.rest = 0, b""
                    file.seek(self.position)
                    data = file.read()
            except FileNotFoundError:
                return []
            self.position += len(data)
            *lines, self.rest = (self.rest + data).split(b"\n")
        return [line.decode(errors="replace").strip("\r") for line in lines]


def console_tail(guest, count=25):
    """The last lines of a guest's console, for an error message."""
    try:
        data = guest.log("console").read_bytes()
    except FileNotFoundError:
        data = b""
    lines = [line.rstrip("\r") for line in
             data.decode(errors="replace").splitlines() if line.strip("\r")]
    if not lines:
        return "  (the console printed nothing)"
    return "\n".join(f"  | {line}" for line in lines[-count:])
