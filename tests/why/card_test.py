# SPDX-License-Identifier: GPL-2.0-or-later
"""A card or a wire that does nothing, and what waits for it."""

import os
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from side import AGO, FOR, config_byte, test, world  # noqa: E402
from vroce_tool.e2e import CARD_AND_RXE  # noqa: E402
from vroce_tool.e2e import test as e2e_test  # noqa: E402
from vroce_tool.guest import SCRIPTS  # noqa: E402
from vroce_tool.reload import reload_guest  # noqa: E402

# The command register of PCI's configuration space: memory, bus master.
COMMAND, MEMORY, MASTER = 4, 2, 4


def waits(qp):
    return (rf"QP {qp.qpn} \(guest {qp.side.guest.number}\) waits for the "
            "acknowledgement of PSN 0, .*: ")


def set_link(bench, number, up):
    with bench.guest(number).qmp() as qmp:
        qmp.execute("set_link", name="card", up=up)


@test("no carrier at this end, or at the other")
def carrier(bench):
    with world(bench) as verbs:
        one, other = verbs.pair(timeout=20)
        other.do("recv")
        for number in (1, 2):
            set_link(bench, number, False)
            try:
                if number == 1:
                    one.do("send")
                words = (f"the wire of guest {number} has no carrier: what it "
                         "sends is lost")
                verbs.says(words)
                verbs.says(waits(one) + words)
            finally:
                set_link(bench, number, True)
        assert one.do("await_poll") == [0]
        for guest in bench.lab.guests:
            bench.run(guest.number, f"{SCRIPTS}/wire-wait "
                      f"52:54:00:77:00:{guest.number:02x} {guest.ipv4}")


@test("the other end of the wire does not read")
def full(bench):
    relay = bench.lab.state["relay"]["pid"]
    with world(bench) as verbs:
        one, other = verbs.pair(timeout=22)
        rkey, address = other.do("keys")
        os.kill(relay, signal.SIGSTOP)
        try:
            for _ in range(30):
                one.do("write", rkey=rkey, address=address, size=60000)
                # It blocks once there is no room for its frames, either.
                bench.run(2, "timeout 3 ping -q -l 600 -c 600 -s 8000 -W 1 "
                          f"{bench.guest(1).ipv4}; true")
                if any(reason.code == "wire" for reason in verbs.reasons()):
                    break
            verbs.says(rf"the wire of guest 2 is full, {FOR}: its other end "
                       "does not read")
        finally:
            os.kill(relay, signal.SIGCONT)
        assert set(one.do("await_poll")) == {0}


def no_master(bench, number):
    """A guest whose card may not use DMA."""
    return config_byte(bench, number, COMMAND, MEMORY, MEMORY | MASTER)


@test("Bus Master is off")
def bus_master(bench):
    with world(bench) as verbs:
        one, other = verbs.pair(timeout=20)
        other.do("recv")
        words = (r"Bus Master of guest 1's card is off: it reaches no guest "
                 "memory")
        with no_master(bench, 1):
            one.do("send")
            verbs.says(words)
            verbs.says(waits(one) + words)
        assert one.do("await_poll") == [0]


@test("a card that is fatal, and then one whose driver is not loaded")
def dead(bench):
    with world(bench) as verbs:
        one, other = verbs.pair(timeout=21)
        with no_master(bench, 1):
            # The driver's command lies in a queue that the card cannot read.
            try:
                verbs.qp(1)
            except AssertionError:
                pass
            verbs.says(r"the card of guest 1 is fatal \(cause 1\) and waits "
                       "for a reset")
        verbs.says(r"the command queue of guest 1 owes \d+ answers?, last "
                   rf"doorbell {AGO}: the card has not fetched them")
        verbs.end(1)
        verbs.qps.remove(other)
        words = "the driver of guest 1 has not enabled the card"
        try:
            # The program takes a moment to end.
            bench.run(1, "until rmmod vroce; do sleep 0.2; done")
            one.do("send")
            verbs.says(words)
            verbs.says(waits(one) + words)
        finally:
            reload_guest(bench.guest(1))


@e2e_test("the peer is soft-RoCE: what is known of this side", slow=True,
          lab=CARD_AND_RXE)
def rxe(bench):
    with world(bench) as verbs:
        one, other = verbs.qp(1), verbs.qp(2)
        one.connect(other, rnr=7)
        other.connect(one, rnr=7)
        one.do("send")
        verbs.says(rf"QP {one.qpn} \(guest 1\) waits on RNR, retries without "
                   rf"end: peer QP {other.qpn} \(guest 2\) has no receive "
                   "posted")
