# SPDX-License-Identifier: GPL-2.0-or-later
"""The command `vroce pair`: a server in one guest, its client in another."""

import itertools
import json
import os
import queue
import re
import shlex
import subprocess
import sys
import threading
import time
from dataclasses import asdict, dataclass, field

from . import why
from .guest import SCRIPTS, Remote
from .lab import Lab, add_lab, between
from .shell import exit_status
from .util import (Command, UserError, finish, output_file, start,
                   write_atomic)

# How long a server may go on after its client has ended.
LEAVE_SECONDS = 20
FAILED_SECONDS = 2
PERIOD_SECONDS = 0.5
# "{{word}}" is the text "{word}"; the shell's "${word}" is its own affair.
PLACEHOLDER = re.compile(r"\{\{([A-Za-z_]\w*)\}\}"
                         r"|(?<![${])\{([A-Za-z_]\w*)\}")
DEVICE_FACTS = ("dev", "gid", "gid6", "netdev")
_serial = itertools.count()


@dataclass
class Side:
    """What one side did; status is None as long as it runs."""
    label: str
    guest: int
    command: str
    status: int = None
    seconds: float = 0.0
    stdout: str = ""
    stderr: str = ""


@dataclass
class Result:
    """What a pair did.

    error says what went wrong beside exit statuses, waits what stood still in
    the cards when time was up.
    """
    a: Side
    b: Side
    seconds: float = 0.0
    error: str = None
    waits: list = field(default_factory=list)
    kernel: list = field(default_factory=list)

    @property
    def passed(self):
        return not self.error and self.a.status == 0 and self.b.status == 0

    def why(self):
        """Why it failed: one line, and what stood still then."""
        if self.error:
            return "\n  ".join([self.error, *self.waits])
        return "; ".join(f"side {side.label} (guest {side.guest}) ended with "
                         f"exit status {side.status}"
                         for side in (self.a, self.b) if side.status)

    def data(self):
        return {**asdict(self), "status": "pass" if self.passed else "fail"}


def expand(command, guest, addresses):
    """Fill in the placeholders of a command for the guest that it runs in.

    Raises UserError for an unknown one.
    """
    facts = dict(addresses)

    def value(match):
        literal, name = match.groups()
        if literal:
            return f"{{{literal}}}"
        if name not in facts and name not in DEVICE_FACTS:
            known = " ".join(f"{{{one}}}" for one in
                             sorted([*addresses, *DEVICE_FACTS]))
            raise UserError(f"{match[0]} stands for nothing: there are {known}"
                            f"; write {{{match[0]}}} for {match[0]} itself")
        if name in ("dev", "gid", "netdev") and name not in facts:
            facts.update(guest.rdma())
        if name == "gid6" and name not in facts:
            facts[name] = guest.rdma(guest.ipv6)["gid"]
        return facts[name]
    return PLACEHOLDER.sub(value, command)


class _Process:
    """A command in a guest, started but waiting for go()."""

    def __init__(self, side, guest, show):
        self.side = side
        self.guest = guest
        # All that this command starts has it in its environment.
        self.mark = f"{os.getpid()}.{next(_serial)}"
        self.remote = Remote(guest, "read -r go; exec < /dev/null; "
                             f"VROCE_PAIR={self.mark} sh -c "
                             f"{shlex.quote(side.command)}")
        self.child = start(guest.ssh_command(self.remote.line),
                           stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                           stderr=subprocess.PIPE, text=True, errors="replace")
        self.readers = [
            threading.Thread(target=self._read, daemon=True, args=arguments)
            for arguments in ((self.child.stdout, "stdout", show, sys.stdout),
                              (self.child.stderr, "stderr", show, sys.stderr))]
        for reader in self.readers:
            reader.start()

    def _read(self, pipe, name, show, stream):
        lines = []
        for line in pipe:
            lines.append(line)
            if show:
                print(f"{self.side.label}| {line.rstrip()}", file=stream,
                      flush=True)
        setattr(self.side, name, "".join(lines))

    def go(self):
        self.began = time.monotonic()
        try:
            self.child.stdin.write("go\n")
            self.child.stdin.close()
        except BrokenPipeError:
            pass        # ssh ended: its exit status tells

    def wait(self, deadline):
        """Whether it has ended by then; fills in the side."""
        try:
            self.child.wait(max(0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            return False
        self.side.status = exit_status(self.child.returncode)
        self.side.seconds = round(time.monotonic() - self.began, 3)
        for reader in self.readers:
            reader.join()
        return True

    def stop(self):
        """End it in the guest too."""
        if self.child.poll() is None:
            self.remote.end()
        finish(self.child)
        # The connection to a guest that has panicked keeps the pipes open.
        for reader in self.readers:
            reader.join(FAILED_SECONDS)


class _ListenWatch:
    """Tells when a command that waits for go() listens in its guest."""

    def __init__(self, process):
        self.lines = queue.Queue()
        self.child = start(process.guest.ssh_command(
            f"{SCRIPTS}/listen-wait VROCE_PAIR={process.mark}"),
                           stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                           stderr=subprocess.DEVNULL, text=True)
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.child.stdout:
            self.lines.put(line.strip())
        self.lines.put("")

    def next(self, timeout):
        """The next word it says, '' at its end, None when time is up."""
        try:
            return self.lines.get(timeout=max(0, timeout))
        except queue.Empty:
            return None

    def close(self):
        finish(self.child)


def run_pair(lab, a, b, *, guests=(1, 2), timeout=120, show=False,
             daemon=False):
    """Run server a and client b (command lines with placeholders).

    daemon: the server does not end by itself; stop it after the client.
    Returns a Result; raises UserError if it could not even start.
    """
    servers, clients = lab.guest(guests[0]), lab.guest(guests[1])
    addresses = {"a": servers.ipv4, "b": clients.ipv4,
                 "a6": servers.ipv6, "b6": clients.ipv6}
    result = Result(Side("a", guests[0], expand(a, servers, addresses)),
                    Side("b", guests[1], expand(b, clients, addresses)))
    began = time.monotonic()
    deadline = began + timeout
    for guest in {servers, clients}:
        guest.connect()
    listens = server = client = None
    with lab.watch() as watch:
        try:
            server = _Process(result.a, servers, show)
            listens = _ListenWatch(server)
            client = _Process(result.b, clients, show)
            result.error = _converse(listens, server, client, deadline, daemon,
                                     watch)
            # Of a kernel in trouble no questions are asked.
            if result.error and not watch.check() and \
                    None in (result.a.status, result.b.status):
                result.waits = _waits(lab, result)
        finally:
            for part in (client, server):
                if part:
                    part.stop()
            if listens:
                listens.close()
        watch.check()
        result.kernel = [line for _number, line in watch.reports]
    if result.kernel and not result.error:
        result.error = f"a guest's kernel reports: {result.kernel[0]}"
    result.seconds = round(time.monotonic() - began, 3)
    return result


def _waits(lab, result):
    """What stands still now; all is well is news only of who waited."""
    waits = why.sentences(lab)
    failed = result.a.status or result.b.status
    return [] if failed and waits[:1] == [why.NOTHING] else waits


def _converse(listens, server, client, deadline, daemon, watch):
    """Go through the phases; returns what went wrong, or None."""
    if listens.next(deadline - time.monotonic()) != "armed":
        return f"cannot watch for listeners in guest {server.side.guest}"
    server.go()
    while (word := listens.next(min(0.1, deadline - time.monotonic()))) is None:
        if server.wait(0):
            if listens.next(0) == "listening":
                break
            return (f"the server ended (exit status {server.side.status}) "
                    "before it listened")
        if time.monotonic() > deadline:
            return "the server did not listen within the time limit (--timeout)"
    else:
        if word != "listening":
            return f"cannot watch for listeners in guest {server.side.guest}"
    client.go()
    while not client.wait(min(deadline, time.monotonic() + PERIOD_SECONDS)):
        for number, line in watch.reports:
            if "Kernel panic" in line:
                return f"guest {number} panicked: {line}"
        if time.monotonic() > deadline:
            return "the client did not end within the time limit (--timeout)"
    if client.side.status:
        # The server's own report may tell why: let it come.
        server.wait(time.monotonic() + FAILED_SECONDS)
        return f"the client ended with exit status {client.side.status}"
    if daemon:
        if server.wait(0):
            return None
        server.side.status = 0
        return None
    leave = min(LEAVE_SECONDS, max(1, deadline - time.monotonic()))
    if not server.wait(time.monotonic() + leave):
        return (f"the server still runs {leave:.0f} s after its client ended "
                "(--daemon stops one that never ends)")
    return None


def guest_pair(text):
    import argparse
    words = text.split(",")
    if len(words) != 2 or not all(word.isdecimal() for word in words):
        raise argparse.ArgumentTypeError(
            f"'{text}' is not two guests as in 1,2")
    return tuple(map(int, words))


def add_arguments(parser):
    add_lab(parser)
    parser.add_argument("--a", metavar="CMD", required=True,
                        help="the server's command line, run in guest 1")
    parser.add_argument("--b", metavar="CMD", required=True,
                        help="the client's command line, run in guest 2 once "
                        "the server listens")
    parser.add_argument("--guests", metavar="A,B", type=guest_pair,
                        default=(1, 2), help="which guests (default: 1,2; "
                        "they may be the same)")
    parser.add_argument("--daemon", action="store_true",
                        help="the server never ends by itself: stop it after "
                        "the client")
    parser.add_argument("--timeout", metavar="SECONDS", default=120,
                        type=between(1, 86400, "seconds"),
                        help="for all of it (default: 120)")
    parser.add_argument("--json", metavar="FILE", type=output_file,
                        help="write what happened as data")


def run(args):
    lab = Lab.load_awake(args.lab)
    if max(args.guests) > len(lab.guests):
        raise UserError(f"lab '{lab.name}' has {len(lab.guests)} guest(s); a "
                        f"pair of {args.guests[0]} and {args.guests[1]} needs "
                        f"'vroce up {max(args.guests)}{lab.option}', or choose "
                        "others with --guests A,B")
    result = run_pair(lab, args.a, args.b, guests=args.guests,
                      timeout=args.timeout, show=True, daemon=args.daemon)
    if args.json:
        write_atomic(args.json, json.dumps(result.data(), indent=2) + "\n")
    if not result.passed:
        raise UserError(result.why())


COMMANDS = [
    Command("pair", "a server in one guest and its client in another",
            add_arguments, run,
            "Run CMD a in guest 1, wait until it listens (TCP, UDP or "
            "rdma_cm), then run CMD b in guest 2; show both outputs; fail if "
            "either fails.  In both commands {a} and {b} stand for the wire "
            "addresses ({a6}, {b6}: IPv6), {dev} for the RDMA device of the "
            "guest that runs it, {gid} for the index of its IPv4 RoCEv2 GID "
            "({gid6}: IPv6) and {netdev} for its interface; {{word}} stands "
            "for {word} itself."),
]
