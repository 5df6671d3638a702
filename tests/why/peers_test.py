# SPDX-License-Identifier: GPL-2.0-or-later
"""Connections that stand still, and what `vroce why` says of each."""

import ipaddress
import json
import re
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from side import AGO, FOR, test, world  # noqa: E402
from vroce_tool import impair, pair  # noqa: E402
from vroce_tool.util import REPO  # noqa: E402

# An address vector's peer that nobody has.
NOBODY = "10.77.0.99"


def command(lab, name, *words):
    """Run a command of `vroce`; returns its exit status and output."""
    result = subprocess.run([REPO / "scripts/vroce", name, "--lab", lab.name,
                             *map(str, words)], text=True, check=False,
                            capture_output=True)
    assert not result.stderr, result.stderr
    return result.returncode, result.stdout


@test("nothing waits between idle guests, and of a QP it says how it is")
def idle(bench):
    with world(bench) as verbs:
        verbs.says_nothing()
        assert command(bench.lab, "why") == (0, "nothing waits\n")
        one, other = verbs.pair()
        other.do("recv", count=3)
        status, text = command(bench.lab, "why", other.qpn)
        line = [line for line in text.splitlines()
                if line.startswith(str(other))]
        assert status == 0 and line == [
            f"{other} is in rts, connected to peer {one}, has nothing to send "
            "(nothing was ever posted), 3 receives posted"], text


@test("RNR: retries, the peer's last receive, and its unread completions")
def rnr(bench):
    with world(bench) as verbs:
        one, other = verbs.pair(rnr=6)
        other.do("arm")
        other.do("recv", count=2)
        one.do("send", count=2)
        one.do("poll")
        # 655 ms until each retry: seconds to look at it.
        one.do("send")
        verbs.says(
            rf"QP {one.qpn} \(guest 2\) waits on RNR, retry [1-6] of 6: peer "
            rf"QP {other.qpn} \(guest 1\) has no receive posted, last post "
            rf"{AGO}; its CQ \d+ was armed at 0 but 2 completions are unread",
            absent=r"^CQ")


@test("RNR: without end, and of an SRQ (shared receive queue)")
def rnr_srq(bench):
    with world(bench) as verbs:
        one, other = verbs.qp(2), verbs.qp(1, srq=True)
        one.connect(other, rnr=7)
        other.connect(one)
        one.do("send")
        verbs.says(
            rf"QP {one.qpn} \(guest 2\) waits on RNR, retries without end: "
            rf"peer QP {other.qpn} \(guest 1\) has no receive posted in SRQ "
            r"\d+, last post never")
        status, text = command(bench.lab, "why")
        assert status == 3 and f"{one} waits on RNR" in text, text
        other.do("recv")
        verbs.says(r"CQ \d+ \(guest 1\): 1 completion unread, the last came "
                   rf"{AGO}: it was never armed, and the program does not poll")
        assert other.do("poll") == [0]


@test("RNR: at whatever moment it is looked at")
def rnr_any_time(bench):
    with world(bench) as verbs:
        one, other = verbs.qp(2), verbs.qp(1)
        one.connect(other, rnr=7)
        # 0.64 ms until each retry: many looks fall between two of them.
        other.connect(one, rnr_timer=12)
        one.do("send")
        words = (rf"QP {one.qpn} \(guest 2\) waits on RNR, retries without "
                 rf"end: peer QP {other.qpn} \(guest 1\) has no receive "
                 "posted, last post never")
        verbs.says(words)
        for _ in range(4):
            verbs.says(words, absent="lost on the wire|come for it", seconds=0)


@test("an RNR retry error")
def rnr_error(bench):
    with world(bench) as verbs:
        one, other = verbs.qp(2), verbs.qp(1)
        one.connect(other, rnr=0)
        other.connect(one)
        one.do("send")
        verbs.says(
            rf"QP {one.qpn} \(guest 2\) is in err {FOR}: its send 0x1 failed "
            r"with 'RNR retry counter exceeded'; peer "
            rf"QP {other.qpn} \(guest 1\) has no receive posted, last post "
            "never")


@test("no acknowledgement: the peer QP is gone, not yet there, or in error")
def peer_state(bench):
    with world(bench) as verbs:
        one, other = verbs.pair(timeout=20)
        other.do("state", to="err")
        one.do("send")
        waits = (rf"QP {one.qpn} \(guest 2\) waits for the acknowledgement of "
                 r"PSN 0, \d of 7 retries used, the next in [\d.]+ s, never "
                 "answered: ")
        verbs.says(waits + rf"peer QP {other.qpn} \(guest 1\) is in err {FOR}:"
                   " its own side moved it there, and its work is flushed")
        other.do("state", to="reset")
        other.do("init")
        verbs.says(waits + rf"peer QP {other.qpn} \(guest 1\) is in init: it "
                   "takes no packets yet")
        other.do("destroy")
        verbs.qps.remove(other)
        verbs.says(waits + rf"peer QP {other.qpn} \(guest 1\) no longer "
                   "exists")


@test("nothing to send, and the peer QP is gone")
def peer_gone(bench):
    with world(bench) as verbs:
        one, other = verbs.pair()
        one.do("recv", count=3)
        other.do("destroy")
        verbs.qps.remove(other)
        words = f"{one} is in rts, but its peer {other} no longer exists: " \
            "nothing will come"
        verbs.says(re.escape(words))
        status, text = command(bench.lab, "why", one.qpn)
        assert (status, text) == (3, words + "\n"), text


@test("no acknowledgement: the peer QP is connected to another")
def stranger(bench):
    with world(bench) as verbs:
        one, other, third = verbs.qp(2), verbs.qp(1), verbs.qp(2)
        other.connect(third)
        one.connect(other, timeout=20)
        one.do("send")
        verbs.says(rf"QP {one.qpn} \(guest 2\) waits .*: peer QP {other.qpn} "
                   rf"\(guest 1\) is connected to QP {third.qpn} at 10.77.0.2")


@test("no acknowledgement: nobody has the peer's address")
def nobody(bench):
    guest = bench.guest(2)
    neighbour = (f"{NOBODY} dev {guest.rdma()['netdev']}")
    guest.run(f"ip neigh replace {neighbour} lladdr 52:54:00:77:00:99")
    try:
        with world(bench) as verbs:
            one = verbs.qp(2)
            gid = ipaddress.IPv6Address(f"::ffff:{NOBODY}").exploded
            one.do("connect", peer=7, gid=gid, timeout=0)
            one.do("send")
            verbs.says(rf"QP {one.qpn} \(guest 2\) waits for the "
                       r"acknowledgement of PSN 0, without a timeout, never "
                       rf"answered: peer QP 7 \({NOBODY}, outside this lab\) "
                       "does not answer")
    finally:
        guest.run(f"ip neigh del {neighbour}")


@test("a retry error, and what has become of the peer")
def retry_error(bench):
    with world(bench) as verbs:
        one, other = verbs.qp(2), verbs.qp(1)
        other.do("init")
        one.connect(other, timeout=8, retry=1)
        one.do("send")
        verbs.says(
            rf"QP {one.qpn} \(guest 2\) is in err {FOR}: its send 0x1 failed "
            r"with 'transport retry counter exceeded'; peer "
            rf"QP {other.qpn} \(guest 1\) is in init: it takes no packets yet")


@test("a remote access error, and the rule by which the peer refused")
def access_error(bench):
    with world(bench) as verbs:
        one, other = verbs.pair()
        rkey, address = other.do("keys")
        one.do("write", rkey=rkey ^ 0xff, address=address)
        verbs.says(
            rf"QP {one.qpn} \(guest 2\) is in err {FOR}: its send 0x1 failed "
            rf"with 'remote access error'; peer QP {other.qpn} \(guest 1\) "
            "refused it by rule key: no region has this key")
        verbs.says(
            rf"QP {other.qpn} \(guest 1\) is in err {FOR}: 'access violation "
            "by the peer' was raised by rule key: no region has this key")


@test("the own side's states: INIT, SQD, SQE, ERR, and no doorbell")
def own_state(bench):
    with world(bench) as verbs:
        one, other = verbs.pair()
        waiting = verbs.qp(1)
        waiting.do("init")
        waiting.do("recv", count=2)
        other.do("recv")
        one.do("state", to="sqd")
        one.do("send")
        verbs.says(rf"QP {one.qpn} \(guest 2\) is in sqd, and has work "
                   "requests posted: they are not begun before it is in rts "
                   "again")
        verbs.says(rf"QP {waiting.qpn} \(guest 1\) is in init {FOR} with 2 "
                   "receives posted: its program has not connected it")
        one.do("state", to="rts")
        waiting.do("state", to="err")
        verbs.says(rf"QP {waiting.qpn} \(guest 1\) is in err {FOR}: its own "
                   "side moved it there, and its work is flushed")


@test("a datagram QP: SQE, and datagrams that nobody expects")
def datagrams(bench):
    with world(bench) as verbs:
        one, other = verbs.qp(2, kind="ud"), verbs.qp(1, kind="ud")
        one.do("connect")
        other.do("connect")
        target = {"peer": other.qpn, "gid": other.side.gid}
        one.do("datagram", **target)
        verbs.says(rf"QP {other.qpn} \(guest 1\) \(UD\) has no receive "
                   rf"posted, and messages come for it, the last {AGO}")
        assert one.do("poll") == [0]
        one.do("datagram", lkey=1, **target)
        verbs.says(rf"QP {one.qpn} \(guest 2\) is in sqe {FOR}: its send 0x2 "
                   "failed with 'local protection error' by rule key: no "
                   "region has this key")


@test("a doorbell that was forgotten")
def doorbell(bench):
    with world(bench) as verbs:
        one, other = verbs.pair()
        other.do("recv", count=3)
        one.do("send")
        # The library finishes one when the next begins.
        one.do("scribble", count=2)
        verbs.says(rf"QP {one.qpn} \(guest 2\) waits for a doorbell: 1 work "
                   rf"request written to its send queue, last doorbell {AGO}")
        one.do("ring")
        verbs.says(r"CQ \d+ \(guest 2\): 3 completions unread.*",
                   absent="doorbell:")


@test("packets and answers that are lost on the wire")
def lost(bench):
    wire = impair.Wire(bench.lab)
    with world(bench) as verbs:
        one, other = verbs.pair(timeout=20)
        other.do("recv", count=2)
        waits = rf"QP {one.qpn} \(guest 2\) waits for the acknowledgement.*: "
        peer = rf"peer QP {other.qpn} \(guest 1\) "
        try:
            wire.blackout(600, sender=2)
            one.do("send")
            verbs.says(waits + peer + r"has not received it \(it expects PSN "
                       r"0, last packet from here never\): it was lost on the "
                       "wire")
            _status, text = command(bench.lab, "why")
            assert "the relay loses every frame from guest 2 to guest 1, " \
                in text, text
            wire.blackout(0, sender=2)
            wire.blackout(600, sender=1)
            verbs.says(waits + peer + r"has received it \(it expects PSN 1\): "
                       "its answer was lost on the wire")
        finally:
            wire.blackout(0)
        assert one.do("await_poll") == [0]


@test("inspect shows what the cards hold, as tables and as data")
def inspect(bench):
    with world(bench) as verbs:
        one, other = verbs.qp(2, srq=True), verbs.qp(1)
        one.connect(other)
        other.connect(one)
        one.do("recv", count=5)
        status, text = command(bench.lab, "inspect", "qp", one.qpn, "--guest",
                               2, "--json")
        guest, = json.loads(text)["guests"]
        qp, = guest["qp"]
        assert status == 0 and guest["guest"] == 2, text
        assert (qp["qpn"], qp["dest-qpn"]) == (one.qpn, other.qpn), qp
        _status, text = command(bench.lab, "inspect", "srq", "--json")
        srq, = json.loads(text)["guests"][1]["srq"]
        assert (srq["posted"], srq["consumer"]) == (5, 0), srq
        _status, text = command(bench.lab, "inspect")
        for kind in ("qp", "cq", "mr", "eq", "gid", "port", "vector"):
            for number in (1, 2):
                assert f"guest {number}, {kind}:\n" in text, text
        assert re.search(rf"^  {one.qpn} +RC +rts +{other.qpn} 10.77.0.1 ",
                         text, re.MULTILINE), text
        _status, text = command(bench.lab, "inspect", "qp", one.qpn)
        assert f"  qpn: {one.qpn}\n" in text and "  state: rts\n" in text, text
        assert re.search(r"^  state-since: [\d.]+ s ago$", text,
                         re.MULTILINE), text


@test("a pair whose time is up tells why nothing moves")
def time_up(bench):
    with world(bench) as verbs:
        one, other = verbs.pair()
        one.do("send")
        result = pair.run_pair(bench.lab, "rping -s -a {a}", "sleep 100",
                               timeout=8)
        assert any(line.startswith(f"{one} waits on RNR, retries without end: "
                                   f"peer {other} has no receive posted")
                   for line in result.waits), result.why()
        assert result.waits[0] in result.why()
