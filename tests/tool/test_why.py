# SPDX-License-Identifier: GPL-2.0-or-later
"""What `vroce why` says of states that are hard to bring about in a guest."""

import argparse
import contextlib
import io
import json
import sys
import types
import unittest
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))

from vroce_tool import inspect, why  # noqa: E402
from vroce_tool.guest import CARD, RXE  # noqa: E402
from vroce_tool.reasons import View  # noqa: E402
from vroce_tool.snapshot import State  # noqa: E402
from vroce_tool.util import UserError  # noqa: E402

SECOND = 10 ** 9
NOW = 100 * SECOND


def card(**changes):
    return {"clock": NOW, "enabled": True, "bus-master": True, "fatal": 0,
            "link-up": True, "tx-blocked": False, "msix-enabled": True,
            "misuse-policy": "log", "misuse": [], "vectors": [
                {"vector": number, "masked": False, "pending": False,
                 "suppressed": 0} for number in range(3)],
            "command-queue": {"size": 32, "vector": 0, "producer": 7,
                              "fetched": 7, "completed": 7}, **changes}


def qp(qpn, gid, dest, **changes):
    return {"qpn": qpn, "type": "RC", "state": "rts", "send-cqn": 1,
            "recv-cqn": 1, "dest-qpn": dest, "dgid": gid, "wait": "none",
            "sq-producer": 1, "sq-consumer": 1, "rq-producer": 0,
            "rq-posted": 0, "rq-consumer": 0, "rq-entries": 16,
            "unacked-psn": 5, "expected-psn": 5, "last-post": NOW,
            "last-receive-post": 0, "state-since": 0, "retry-count": 7,
            "retries-left": 7, "rnr-retry-count": 7, "rnr-retries-left": 7,
            **changes}


def cq(**changes):
    return {"cqn": 1, "eqn": 1, "size": 16, "producer": 0, "consumer": 0,
            "consumer-seen": 0, "armed": "no", "armed-at": 0, **changes}


def guest(number, *objects, status="running", **changes):
    state = State(number, CARD, status=status, card=card(**changes))
    state.objects = {
        "gid": {0: {"index": 0, "gid": f"::ffff:10.77.0.{number}"}},
        "qp": {entry["qpn"]: entry for entry in objects if "qpn" in entry},
        "cq": {entry["cqn"]: entry for entry in objects if "cqn" in entry},
        "srq": {entry["srqn"]: entry for entry in objects
                if "qpn" not in entry and "srqn" in entry},
        "eq": {}}
    return state


class Sentences(unittest.TestCase):
    def says(self, states, *sentences, **options):
        self.assertEqual([reason.sentence for reason
                          in View(states, **options).reasons()],
                         list(sentences))

    def waiting(self, **changes):
        """QP 17 of guest 2, which waits for QP 22 of guest 1."""
        return qp(17, "::ffff:10.77.0.1", 22, **{
            "wait": "ack", "sq-producer": 2, **changes})

    def peer(self, **changes):
        return qp(22, "::ffff:10.77.0.2", 17, **changes)

    WAITS = ("QP 17 (guest 2) waits for the acknowledgement of PSN 5, without "
             "a timeout, never answered: ")

    def test_the_sentence_of_the_readme(self):
        one = self.waiting(**{"wait": "rnr", "rnr-retry-count": 6,
                              "rnr-retries-left": 1})
        other = self.peer(**{"rq-producer": 3, "rq-posted": 3,
                             "rq-consumer": 3,
                             "last-receive-post": NOW - 4100 * 10 ** 6})
        queue = cq(**{"producer": 43, "armed-at": 40, "last-arm": 1})
        self.says([guest(1, other, queue), guest(2, one)],
                  "QP 17 (guest 2) waits on RNR, retry 5 of 6: peer QP 22 "
                  "(guest 1) has no receive posted, last post 4.1 s ago; its "
                  "CQ 1 was armed at 40 but 43 completions are unread")

    def test_receives_that_came_meanwhile(self):
        one = self.waiting(wait="rnr")
        self.says([guest(1, self.peer(**{"rq-posted": 2})), guest(2, one)],
                  "QP 17 (guest 2) waits on RNR, retries without end: peer QP "
                  "22 (guest 1) has 2 receives posted by now")

    def between_tries(self, refused=10 ** 7, posted=0, **changes):
        """The moment between a retransmission and the next RNR NAK."""
        one = self.waiting(**{
            "retry-deadline": NOW + SECOND, "ack-timeout": SECOND + 10 ** 6,
            **changes})
        other = self.peer(**{
            "last-refused": NOW - refused, "last-heard": NOW - 10 ** 6,
            "rq-posted": posted, "last-receive-post": NOW - 3 * SECOND})
        return [guest(1, other), guest(2, one)]

    def test_rnr_between_two_tries(self):
        waits = "QP 17 (guest 2) waits on RNR, retries without end: peer QP " \
            "22 (guest 1) has no receive posted, last post 3.0 s ago"
        for wait in "ack", "turn":
            self.says(self.between_tries(wait=wait), waits)
        # With another number the peer has since taken what it refused.
        states = self.between_tries(**{"unacked-psn": 6})
        self.assertEqual([reason.code for reason in View(states).reasons()],
                         ["refused", "ack"])

    def test_an_answer_that_is_under_way(self):
        waits = self.WAITS.replace(
            "without a timeout, never answered",
            "{} of 7 retries used, the next in 1.0 s, answered by RNR only")
        peer = "peer QP 22 (guest 1) "
        facts = "(it expects PSN 5, last packet from here 1 ms ago)"
        self.says(self.between_tries(posted=1), waits.format(0) + peer +
                  f"has heard from here since {facts}: its answer is under "
                  "way")
        lost = f"{peer}has not received it {facts}: it was lost on the wire"
        # A retry is used up, then a second without an answer.
        self.says(self.between_tries(posted=1, **{"retries-left": 6}),
                  waits.format(1) + lost)
        self.says(self.between_tries(posted=1, **{
            "ack-timeout": 2 * SECOND}), waits.format(0) + lost)
        self.says(self.between_tries(20 * SECOND, **{"retries-left": 6}),
                  waits.format(1) + lost)

    def test_answers_of_rnr_by_the_own_count(self):
        one = self.waiting(**{"rnr-retry-count": 6, "rnr-retries-left": 4,
                              "dgid": "::ffff:10.77.0.9"})
        self.says([guest(2, one)], self.WAITS.replace(
            "never answered", "answered by RNR only") + "peer QP 22 "
            "(10.77.0.9, outside this lab) does not answer")

    def test_a_guest_that_stands_alone(self):
        stands = "guest 1 stands still (debug at a breakpoint): 'vroce cont' " \
            "resumes it"
        self.says([guest(1, self.peer(), status="debug"),
                   guest(2, self.waiting())], stands, self.WAITS + stands)

    def test_a_guest_of_another_lab(self):
        self.says([guest(1, status="paused")], "guest 1 stands still (paused):"
                  " 'vroce cont --lab a' resumes it", lab="a")

    def test_a_machine_that_hangs(self):
        hangs = State(1, CARD, answers=False)
        words = ("QEMU of guest 1 does not answer: it hangs, or another "
                 "program talks to it")
        self.says([hangs, guest(2, self.waiting())], words,
                  self.WAITS + words)

    def test_a_guest_that_a_rule_stopped(self):
        rule = {"name": "db-index", "text": "beyond the ring",
                "last": NOW - 1000}
        self.says([guest(1, status="paused", misuse=[rule],
                         **{"misuse-policy": "stop"})],
                  "guest 1 stands still (paused by misuse rule db-index: "
                  "beyond the ring): 'vroce cont' resumes it")

    def test_a_peer_that_has_not_had_its_turn(self):
        other = self.peer(wait="wire", **{"waits-for": "the wire"})
        self.says([guest(1, other), guest(2, self.waiting())], self.WAITS +
                  "peer QP 22 (guest 1) has not answered yet: the wire")

    def test_a_peer_of_another_type(self):
        self.says([guest(1, self.peer(type="UC")), guest(2, self.waiting())],
                  "QP 22 (guest 1) is in rts, but its peer QP 17 (guest 2) is "
                  "of type RC, not UC: nothing will come",
                  self.WAITS + "peer QP 22 (guest 1) is of type UC, not RC")

    def test_psns_wrap_around(self):
        one = self.waiting(**{"unacked-psn": 0xffffff})
        other = self.peer(**{"expected-psn": 1})
        self.says([guest(1, other), guest(2, one)],
                  self.WAITS.replace("PSN 5", "PSN 16777215") + "peer QP 22 "
                  "(guest 1) has received it (it expects PSN 1): its answer "
                  "was lost on the wire")

    def test_soft_roce_by_each_of_its_addresses(self):
        for gid in ("::ffff:10.77.0.1", "fd77::1", "fe80::5054:ff:fe77:1"):
            self.says([State(1, RXE), guest(2, self.waiting(dgid=gid))],
                      self.WAITS + "peer QP 22 (guest 1), of soft-RoCE, does "
                      "not answer")

    def test_a_peer_from_which_nothing_will_come(self):
        one = qp(17, "::ffff:10.77.0.1", 22, **{"rq-posted": 4})
        waits = "QP 17 (guest 2) is in rts, but its peer QP 22 (guest 1) "
        self.says([guest(1), guest(2, one)],
                  waits + "no longer exists: nothing will come")
        self.says([guest(1, self.peer(**{"dest-qpn": 18})), guest(2, one)],
                  "QP 22 (guest 1) is in rts, but its peer QP 18 (guest 2) no "
                  "longer exists: nothing will come",
                  waits + "is connected to QP 18 at 10.77.0.2: nothing will "
                  "come")
        broken = self.peer(state="err")
        self.assertEqual(
            View([guest(1, broken), guest(2, one)]).reasons()[1].sentence,
            waits + "is in err: nothing will come")
        # Guests that are ill, or not seen, are no reason of their own here.
        self.says([State(1, RXE), guest(2, one)])
        ill = guest(1, **{"link-up": False})
        self.assertEqual([reason.code for reason
                          in View([ill, guest(2, one)]).reasons()],
                         ["carrier"])

    def test_a_peer_that_is_not_connected_yet(self):
        for state in "reset", "init":
            other = self.peer(state=state)
            for seconds, sentences in ((4, ()), (6, (
                    "QP 17 (guest 2) is in rtr, but its peer QP 22 (guest 1) "
                    f"is in {state}: nothing will come",))):
                one = qp(17, "::ffff:10.77.0.1", 22, state="rtr", **{
                    "state-since": NOW - seconds * SECOND})
                self.says([guest(1, other), guest(2, one)], *sentences)

    def test_commands(self):
        queue = card()["command-queue"]
        queue.update({"producer": 9, "last-doorbell": NOW - 2 * SECOND})
        self.says([guest(1, **{"command-queue": queue})],
                  "the command queue of guest 1 owes 2 answers, last doorbell "
                  "2.0 s ago: the card has not fetched them")
        queue.update({"producer": 8, "fetched": 8, "running": "CREATE_MR"})
        self.says([guest(1, **{"command-queue": queue})],
                  "the command queue of guest 1 owes 1 answer, last doorbell "
                  "2.0 s ago: command CREATE_MR is under way")

    def test_completions_that_wait_for_company(self):
        queue = cq(**{"producer": 1, "armed": "any", "last-arm": 1,
                      "held-back": 1, "last-completion": NOW})
        self.says([guest(1, queue)],
                  "CQ 1 (guest 1): 1 completion unread, the last came just "
                  "now: its event waits for more of them (MODIFY_CQ)")

    def test_a_shared_receive_queue_in_error(self):
        srq = {"srqn": 4, "producer": 9, "consumer": 3, "error": False}
        broken = {**srq, "error": True}
        other = self.peer(state="err", srqn=4, **{
            "state-since": NOW - 2 * SECOND,
            "last-rule-text": "rq-record: beyond the ring"})
        self.says([guest(1, srq)])
        self.says([guest(1, broken, other)],
                  "QP 22 (guest 1) is in err for 2.0 s: by rule rq-record: "
                  "beyond the ring",
                  "SRQ 4 (guest 1) is in error, and each QP with it that needs "
                  "a receive: its doorbell record or a work request was wrong "
                  "or not readable")
        self.assertEqual([inspect.COLUMNS["srq"]["ERROR"](None, entry)
                          for entry in (srq, broken)], ["-", "yes"])

    def test_a_qp_that_is_well(self):
        one = self.waiting(**{"waits-for": "the acknowledgement of PSN 5"})
        view = View([guest(1, self.peer()), guest(2, one)])
        self.assertEqual(
            view.health(view.states[1], one),
            "QP 17 (guest 2) is in rts, connected to peer QP 22 (guest 1), "
            "makes progress (waits for the acknowledgement of PSN 5), 0 "
            "receives posted")

    def test_what_the_card_itself_does_not_know(self):
        one = self.waiting(wait="unknown", **{"waits-for": "nothing"})
        self.says([guest(2, one)], "QP 17 (guest 2) waits for nothing")


class Progress(unittest.TestCase):
    def reasons(self, **changes):
        one = qp(17, "::ffff:10.77.0.1", 22, **{"wait": "ack", **changes})
        return View([guest(1), guest(2, one)]).reasons()

    def holds(self, before, after):
        held = [reason.since(before) for reason in after]
        return [reason.code for reason in held if reason]

    def test_what_moves_does_not_wait(self):
        self.assertEqual(self.holds(self.reasons(), self.reasons()), ["ack"])
        moved = self.reasons(**{"unacked-psn": 6})
        self.assertEqual(self.holds(self.reasons(), moved), [])

    def test_a_try_that_is_under_way(self):
        waiting = self.reasons(wait="rnr")
        self.assertEqual(self.holds(waiting, self.reasons()), ["rnr"])
        self.assertEqual(self.holds(self.reasons(), waiting), ["rnr"])
        turn = self.reasons(wait="turn", **{"waits-for": "its turn"})
        self.assertEqual(self.holds(self.reasons(), turn), ["ack"])

    def test_what_broke_meanwhile_is_told(self):
        broke = self.reasons(state="err", error={
            "status": "bad response", "wr-id": 1, "receive": False})
        self.assertEqual(self.holds(self.reasons(), broke), ["error"])
        self.assertEqual(self.holds([], broke), [])


class Inspect(unittest.TestCase):
    def shown(self, kind, number, *objects):
        with contextlib.redirect_stdout(io.StringIO()) as out:
            inspect.show([guest(1, *objects)], [kind], number)
        return out.getvalue().splitlines()

    def test_all_of_one(self):
        one = qp(22, "::ffff:10.77.0.2", 17, **{
            "ack-timeout": 67108864, "rnr-deadline": NOW - 1,
            "retry-deadline": NOW + SECOND // 2, "last-rule": 12,
            "error": {"time": NOW - SECOND, "status": "flushed"}})
        lines = self.shown("qp", 22, dict(reversed(one.items())))
        self.assertEqual(lines[:6], [
            "guest 1, qp:", "  qpn: 22", "  type: RC", "  state: rts",
            "  dest-qpn: 17", "  dgid: ::ffff:10.77.0.2"])
        for line in ("  ack-timeout: 0.067 s", "  retry-deadline: in 0.500 s",
                     "  rnr-deadline: in 0.000 s", "  last-rule: 12",
                     "  last-receive-post: never", "  last-post: 0.000 s ago",
                     "    time: 1.000 s ago"):
            self.assertIn(line, lines)
        self.assertEqual(lines[6:], self.shown("qp", 22, one)[6:])

    def test_none(self):
        self.assertEqual(self.shown("srq", None), ["guest 1, srq: none"])
        self.assertEqual(self.shown("srq", 3), [])

    def test_a_region_that_is_all_of_memory(self):
        mr = {"key": 2, "length": 2 ** 64 - 1}
        length = inspect.COLUMNS["mr"]["LENGTH"]
        self.assertEqual([length(None, mr), length(None, {"length": 4096})],
                         ["all", 4096])
        self.assertEqual(inspect.details(guest(1), mr),
                         ["  key: 2", "  length: all"])


class Notes(unittest.TestCase):
    """What is in no card."""

    def lab(self, relay=None):
        return types.SimpleNamespace(name="a", spec={"relay": relay},
                                     guests=[guest(1)])

    def notes(self, *directions, error=None):
        with mock.patch.object(why.Wire, "directions", side_effect=error,
                               return_value=directions):
            return why.notes(self.lab("relay.sock"), View([guest(1)]))

    @staticmethod
    def direction(sender, spec="off", blackout=0):
        return {"from": sender, "to": 3 - sender, "spec": spec,
                "blackout_seconds": blackout}

    def test_the_wire(self):
        self.assertEqual(self.notes(self.direction(1), self.direction(2)), [])
        self.assertEqual(
            self.notes(self.direction(1, blackout=7.25),
                       self.direction(2, "loss=100%,seed=1")),
            ["the relay loses every frame from guest 1 to guest 2, for 7.2 s "
             "more",
             "the relay impairs frames from guest 2 to guest 1: "
             "loss=100%,seed=1"])
        self.assertEqual(self.notes(error=UserError("the relay is gone")),
                         ["the relay is gone"])

    def test_soft_roce(self):
        view = View([guest(1), State(2, RXE)])
        unseen = "guest 2 is soft-RoCE: its side is not seen"
        self.assertEqual(why.notes(self.lab(), View([guest(1)])), [])
        args = argparse.Namespace(lab="a", qpn=None, json=False)
        told = []
        with mock.patch.object(why.Lab, "load", return_value=self.lab()), \
                mock.patch.object(why, "confirmed", return_value=(view, [])):
            for args.json in False, True:
                with contextlib.redirect_stdout(io.StringIO()) as out:
                    self.assertEqual(why.run(args), 0)
                told.append(out.getvalue())
            self.assertEqual(why.sentences(self.lab()),
                             ["nothing waits in the cards", unseen])
        self.assertEqual(told[0], f"nothing waits\n{unseen}\n")
        self.assertEqual(json.loads(told[1]),
                         {"waits": [], "well": [], "notes": [unseen]})


if __name__ == "__main__":
    unittest.main()
