# SPDX-License-Identifier: GPL-2.0-or-later
"""Verbs in the guests by hand, for the tests of this folder: see verbs.py."""

import contextlib
import ipaddress
import json
import queue
import re
import subprocess
import threading
import time
import weakref

from vroce_tool import e2e, relay, why
from vroce_tool.guest import CARD
from vroce_tool.util import finish, start

# Times in sentences.
AGO = r"(?:just now|\d+ ms ago|[\d.]+ s ago|\d+ min ago)"
FOR = r"(?:just now|for (?:\d+ ms|[\d.]+ s|\d+ min))"

# A guest under an emulator may take its time, to start Python above all.
ANSWER_SECONDS = 40
START_SECONDS = 150

# What all tests of this folder share: a wire that can lose frames, and few
# CQs, so that an event queue is small enough to be filled.
LAB = e2e.shape(CARD, CARD, impair=relay.OFF, card=("num-cqs=64",))


def test(name, **options):
    return e2e.test(name, lab=LAB, **options)


@contextlib.contextmanager
def config_byte(bench, number, offset, value, usual):
    """A guest's card with another byte in its PCI configuration space."""
    def write(byte):
        bench.run(number, f"printf '\\{byte:03o}' | dd of={config} bs=1 "
                  f"seek={offset} conv=notrunc status=none")
    netdev = bench.guest(number).rdma()["netdev"]
    config = f"/sys/class/net/{netdev}/device/config"
    write(value)
    try:
        yield
    finally:
        write(usual)


class Side:
    """A program of verbs in one guest."""

    def __init__(self, guest):
        self.guest = guest
        facts = guest.rdma()
        self.gid = ipaddress.IPv6Address(f"::ffff:{guest.ipv4}").exploded
        self.child = start(
            guest.ssh_command(f"exec /vroce/tests/why/verbs.py {facts['dev']} "
                              f"{facts['gid']}"),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True)
        self.lines = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()
        assert self.answer(START_SECONDS) == "ready"

    def _read(self):
        for line in self.child.stdout:
            self.lines.put(line)
        self.lines.put(None)

    def answer(self, seconds=ANSWER_SECONDS):
        said = ""
        while True:
            try:
                line = self.lines.get(timeout=seconds)
            except queue.Empty:
                raise AssertionError(f"no answer from guest "
                                     f"{self.guest.number}; {said}") from None
            assert line is not None, f"guest {self.guest.number}: {said}"
            if line.startswith("{"):
                answer = json.loads(line)
                assert "error" not in answer, answer["error"]
                return answer["result"]
            said += line

    def ask(self, name, operation, **arguments):
        """Begin an operation; answer() returns its result."""
        self.child.stdin.write(json.dumps([name, operation, arguments]) + "\n")
        self.child.stdin.flush()

    def do(self, name, operation, **arguments):
        self.ask(name, operation, **arguments)
        return self.answer()

    def close(self):
        finish(self.child)


class Qp:
    """A QP in a guest; qpn is its number."""

    _serial = 0

    def __init__(self, side, **options):
        Qp._serial += 1
        self.side = side
        self.name = f"qp{Qp._serial}"
        self.qpn = self.do("create", **options)

    def __str__(self):
        return f"QP {self.qpn} (guest {self.side.guest.number})"

    def do(self, operation, **arguments):
        return self.side.do(self.name, operation, **arguments)

    def connect(self, peer, **options):
        self.do("connect", peer=peer.qpn, gid=peer.side.gid, **options)


class World:
    """Verbs in both guests of a bench, and what `why` says of them."""

    # By lab and guest; they outlive a test, since Python starts slowly there.
    # Not by the lab's name: one after another may have the same.
    _sides = weakref.WeakKeyDictionary()

    def __init__(self, bench):
        self.bench = bench
        self.lab = bench.lab
        self.qps = []
        self.all_well = True    # nothing is to wait when the test is over

    def side(self, number):
        sides = self._sides.setdefault(self.lab, {})
        if number not in sides:
            sides[number] = Side(self.bench.guest(number))
        return sides[number]

    def qp(self, number, **options):
        self.qps.append(Qp(self.side(number), **options))
        return self.qps[-1]

    def pair(self, **options):
        """Two connected QPs: in guest 2, in guest 1."""
        one, other = self.qp(2), self.qp(1)
        one.connect(other, **options)
        other.connect(one)
        return one, other

    def close(self):
        """Destroy the QPs; a program that cannot is ended."""
        for qp in self.qps:
            try:
                qp.do("destroy")
            except (AssertionError, OSError):
                self.end(qp.side.guest.number)

    def end(self, number):
        """End the program in a guest, and with it all that it made."""
        side = self._sides.get(self.lab, {}).pop(number, None)
        if side:
            side.close()

    # ------------------------------------------------------------ assertions

    def reasons(self):
        return why.confirmed(self.lab)[1]

    def says(self, pattern, absent=None, seconds=30):
        """Wait until a sentence of `why` matches; returns the match."""
        deadline = time.monotonic() + seconds
        while True:
            sentences = [reason.sentence for reason in self.reasons()]
            for sentence in sentences:
                match = re.fullmatch(pattern, sentence)
                if match:
                    assert not absent or not any(
                        re.search(absent, other) for other in sentences), \
                        sentences
                    return match
            assert time.monotonic() < deadline, \
                f"no sentence is\n  {pattern}\nbut there are\n  " \
                + "\n  ".join(sentences or ["none"])

    def says_nothing(self, seconds=30):
        """Wait until nothing waits any more."""
        deadline = time.monotonic() + seconds
        while found := self.reasons():
            assert time.monotonic() < deadline, "these wait:\n  " + "\n  ".join(
                reason.sentence for reason in found)


@contextlib.contextmanager
def world(bench):
    """A World whose QPs are gone, and nothing waits, afterwards."""
    made = World(bench)
    try:
        yield made
    finally:
        made.close()
    if made.all_well:
        made.says_nothing()
