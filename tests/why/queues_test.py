# SPDX-License-Identifier: GPL-2.0-or-later
"""Completions that nobody reads, events that nobody takes, lost interrupts."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from side import AGO, FOR, config_byte, test, world  # noqa: E402
from vroce_tool.reload import reload_guest  # noqa: E402

# More than an event queue of the lab holds.
EVENTS = 300
# The card's MSI-X capability (docs/device.md): upper byte of its control word.
MSIX_CONTROL = 0x50 + 3
ENABLED, MASKED = 0x80, 0x40


def completed(one, other, count=1):
    """Let a QP complete that many receives."""
    other.do("recv", count=count)
    one.do("send", count=count)
    assert one.do("await_poll") == [0] * count


def msix(bench, number, control):
    """A guest's card with another MSI-X control byte."""
    return config_byte(bench, number, MSIX_CONTROL, control, ENABLED)


@test("completions: nobody polls, and no event was asked for")
def never_armed(bench):
    with world(bench) as verbs:
        one, other = verbs.pair()
        completed(one, other, 3)
        verbs.says(rf"CQ \d+ \(guest 1\): 3 completions unread, the last came "
                   rf"{AGO}: it was never armed, and the program does not poll")


@test("completions: armed for solicited ones, and none is")
def solicited(bench):
    with world(bench) as verbs:
        one, other = verbs.pair()
        other.do("arm", solicited=True)
        completed(one, other)
        verbs.says(rf"CQ \d+ \(guest 1\): 1 completion unread, the last came "
                   rf"{AGO}: it is armed for solicited completions, and none "
                   "of these is")


@test("completions: the program has taken the event and does not poll")
def event_taken(bench):
    with world(bench) as verbs:
        one, other = verbs.pair()
        other.do("arm")
        completed(one, other, 2)
        other.do("event")
        verbs.says(rf"CQ \d+ \(guest 1\): 2 completions unread, the last came "
                   rf"{AGO}: it was armed at 0, its event was raised {AGO} and "
                   "the driver took it; the program does not poll")
        assert other.do("poll") == [0, 0]


@test("a CQ that overflowed takes its QPs along")
def overrun(bench):
    with world(bench) as verbs:
        one, other = verbs.qp(2), verbs.qp(1, cqe=3)
        one.connect(other)
        other.connect(one)
        other.do("recv", count=20)
        one.do("send", count=20)
        verbs.says(r"CQ \d+ \(guest 1\) is in error, and its QPs with it: "
                   "cq-overrun: more completions than the CQ holds")
        verbs.says(rf"QP {other.qpn} \(guest 1\) is in err {FOR}: 'local "
                   "catastrophic error of the QP' was raised by rule "
                   "cq-overrun: more completions than the CQ holds")


@test("interrupts: the vector is masked, then its event queue is full")
def masked(bench):
    with world(bench) as verbs:
        one, other = verbs.pair()
        with msix(bench, 1, ENABLED | MASKED):
            other.do("arm")
            completed(one, other)
            waits = (rf"CQ \d+ \(guest 1\): 1 completion unread, the last came"
                     rf" {AGO}: ")
            pending = r": vector \d is masked with an interrupt pending"
            verbs.says(waits + r"its event waits in EQ \d: \d+ events? not "
                       "taken by the driver" + pending, absent="^(EQ|vector)")
            other.do("arm", times=EVENTS)
            verbs.says(waits + r"its event found no room; EQ \d: \d+ events "
                       r"\(it is full\) and more were lost not taken by the "
                       "driver" + pending, absent="^EQ")
        other.do("event")
        assert other.do("poll") == [0]


@test("interrupts: the netdev's receive queue runs empty")
def netdev(bench):
    # A neighbour that is called unreachable ends a ping.
    answered = ("timeout 20 sh -c 'until ping -q -c 1 -W 1 "
                f"{bench.guest(1).ipv4}; do :; done'")
    with world(bench) as verbs:
        # Masked, it answers no question for its MAC address.
        bench.run(2, answered)
        with msix(bench, 1, ENABLED | MASKED):
            bench.run(2, "ping -q -i 0.002 -c 600 -W 1 "
                      f"{bench.guest(1).ipv4}; true")
            verbs.says(rf"QP \d+ \(guest 1\) \(ETH\) has no receive posted, "
                       rf"and frames come for it, the last {AGO}.*")
        # What came while the ring was empty is lost; one answer is enough.
        bench.run(2, answered)


@test("interrupts: MSI-X is disabled, and what came meanwhile is lost")
def lost_interrupt(bench):
    with world(bench) as verbs:
        one, other = verbs.pair()
        waits = (rf"CQ \d+ \(guest 1\): 1 completion unread, the last came "
                 rf"{AGO}: its event waits in EQ \d: \d+ events? not taken by "
                 "the driver: ")
        with msix(bench, 1, 0):
            other.do("arm")
            completed(one, other)
            verbs.says(waits + "MSI-X is disabled")
            verbs.says("MSI-X of guest 1's card is disabled: no interrupt "
                       "reaches its driver")
        verbs.says(waits + r"the interrupt was lost, vector \d came while "
                   "MSI-X was disabled")
        # Nobody takes the event any more, whatever comes.
        verbs.end(1)
        verbs.qps.remove(other)
        reload_guest(bench.guest(1))
