# SPDX-License-Identifier: GPL-2.0-or-later
"""Why things stand still: sentences that join what all guests' cards know.

Each card says what it waits for (see qapi/vroce.json).  Only here both ends of
a connection are seen at once.
"""

from dataclasses import dataclass

from . import snapshot
from .guest import CARD
from .util import DEFAULT_LAB, lab_option

PSN_BITS = 24
RNR_FOREVER = 7
CONNECTED = ("RC", "UC")
# Reason.code of what is about a QP.
QP_CODES = {"error", "rnr", "ack", "sqd", "turn", "unknown", "doorbell",
            "init", "refused", "peer"}
# What is not over by itself.
ENDS = {"error", "cq-error", "srq-error"}
# Between two tries, a QP that waits on RNR waits for an acknowledgement, and
# one that waits for that for its turn: the first of these says the most.
TELLING = {"error": 3, "rnr": 2, "ack": 1}
# A refused message older than this is history.
REFUSED_SECONDS = 10
# So long a program may take to connect one side after the other.
CONNECT_SECONDS = 5
# An answer may be under way for so long, and its peer have heard the question.
ANSWER_SECONDS = 1
# The card's clock goes on a little until a guest that broke a rule stands.
STOP_SECONDS = 0.2


@dataclass
class Reason:
    """Why one thing stands still."""
    guest: int
    code: str           # for programs: rnr, ack, unread …
    number: int         # of the QP, CQ …; None: the guest or its card
    sentence: str
    marks: tuple = ()   # while these stay the same it did not move
    covers: tuple = ()  # (guest, code, number) of reasons that it tells, too

    @property
    def key(self):
        return self.guest, self.code, self.number

    @property
    def subject(self):
        """What stands still; a QP may do so for one reason after the other."""
        return (self.guest, "qp" if self.code in QP_CODES else self.code,
                self.number)

    def since(self, before):
        """The reason to tell when an earlier list of reasons holds, too.

        None when there was progress since.  An error is what others end in.
        """
        for other in before:
            if other.subject == self.subject and (
                    self.code in ENDS or other.marks == self.marks):
                return max(self, other, key=lambda reason:
                           TELLING.get(reason.code, 0))
        return None

    def ails(self, guest, qpn):
        """Whether it is about that QP, or about all that its guest does."""
        return self.guest == guest and (
            self.number is None or
            self.number == qpn and self.code in QP_CODES)

    def data(self):
        return {"guest": self.guest, "reason": self.code,
                "number": self.number, "sentence": self.sentence}


def ago(seconds):
    if seconds < 0.001:
        return "just now"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms ago"
    return f"{seconds:.1f} s ago" if seconds < 120 else \
        f"{seconds / 60:.0f} min ago"


def since(seconds):
    return "for " + ago(seconds).removesuffix(" ago") \
        if seconds >= 0.001 else "just now"


def many(count, thing):
    return f"{count} {thing}{'s' * (count != 1)}"


def psn_after(one, other):
    """How far PSN one lies behind the other; negative: before it."""
    half = 1 << (PSN_BITS - 1)
    return ((one - other + half) & ((1 << PSN_BITS) - 1)) - half


def distance(producer, consumer):
    return (producer - consumer) & 0xffffffff


def name(kind, number, state):
    return f"{kind} {number} (guest {state.number})"


class View:
    """The states of all guests of a lab at one moment."""

    def __init__(self, states, lab=DEFAULT_LAB):
        self.states = states
        self.lab = lab      # its name

    def reasons(self):
        """Every Reason, those that another one tells left out."""
        found = []
        for state in self.states:
            found += self.of_guest(state)
            if state.running and state.card:
                found += self.of_card(state)
                found += self.of_qps(state)
                found += self.of_cqs(state)
                found += self.of_srqs(state)
                found += self.of_eqs(state)
        told = {key for reason in found for key in reason.covers}
        return [reason for reason in found if reason.key not in told]

    # -------------------------------------------------------- guest and card

    def of_guest(self, state):
        trouble = self.guest_trouble(state)
        if not trouble:
            return []
        code = "no-card" if state.running else "guest"
        return [Reason(state.number, code, None, trouble, (state.status,))]

    def guest_trouble(self, state):
        """Why a guest as a whole does not answer; None if it does."""
        number = state.number
        if not state.alive:
            return f"guest {number} is gone: its QEMU has ended"
        if not state.answers:
            return (f"QEMU of guest {number} does not answer: it hangs, or "
                    "another program talks to it")
        if state.status != "running":
            return (f"guest {number} stands still ({state.status}"
                    f"{self.stop_cause(state)}): 'vroce cont"
                    f"{lab_option(self.lab)}' resumes it")
        if state.mode != CARD:
            return None
        if not state.card:
            return f"guest {number} has no vroce card: it was unplugged"
        return None

    @staticmethod
    def stop_cause(state):
        if state.status == "debug":
            return " at a breakpoint"
        card = state.card
        if card and card["misuse-policy"] == "stop":
            for rule in card["misuse"]:
                if state.age(rule["last"]) < STOP_SECONDS:
                    return f" by misuse rule {rule['name']}: {rule['text']}"
        return ""

    def card_trouble(self, state):
        """(code, words) of why a card neither sends nor receives, or None."""
        card, number = state.card, state.number
        if card["fatal"]:
            return "fatal", (f"the card of guest {number} is fatal (cause "
                             f"{card['fatal']}) and waits for a reset")
        if not card["enabled"]:
            return "disabled", (f"the driver of guest {number} has not "
                                "enabled the card")
        if not card["bus-master"]:
            return "bus-master", (f"Bus Master of guest {number}'s card is "
                                  "off: it reaches no guest memory")
        if not card["link-up"]:
            return "carrier", (f"the wire of guest {number} has no carrier: "
                               "what it sends is lost")
        if card["tx-blocked"]:
            return "wire", (f"the wire of guest {number} is full, "
                            + since(state.age(card["tx-blocked-since"]))
                            + ": its other end does not read"
                            + self.who_stands())
        return None

    def who_stands(self):
        still = [self.guest_trouble(state) for state in self.states
                 if not state.running]
        return f"; {still[0]}" if still else ""

    def of_card(self, state):
        card = state.card
        found = []
        trouble = self.card_trouble(state)
        if trouble:
            found.append(Reason(state.number, trouble[0], None, trouble[1],
                                (card.get("tx-blocked-since"),)))
        if card["enabled"] and not card["msix-enabled"]:
            found.append(Reason(
                state.number, "msix", None, f"MSI-X of guest {state.number}'s "
                "card is disabled: no interrupt reaches its driver"))
        found += self.of_commands(state)
        if card["msix-enabled"]:
            found += [self.of_vector(state, vector)
                      for vector in card["vectors"]
                      if vector["masked"] and vector["pending"]]
        return found

    @staticmethod
    def of_commands(state):
        queue = state.card["command-queue"]
        waiting = distance(queue["producer"], queue["completed"])
        if not waiting:
            return []
        words = f"command {queue['running']} is under way" \
            if "running" in queue else "the card has not fetched them"
        when = ago(state.age(queue["last-doorbell"])) \
            if "last-doorbell" in queue else "before it came here"
        return [Reason(state.number, "command", None,
                       f"the command queue of guest {state.number} owes "
                       f"{many(waiting, 'answer')}, last doorbell {when}: "
                       f"{words}", (queue["completed"],))]

    def of_vector(self, state, vector):
        users = [f"EQ {eq['eqn']}" for eq in state.all("eq")
                 if eq["vector"] == vector["vector"]]
        if state.card["command-queue"].get("vector") == vector["vector"]:
            users.insert(0, "the command queue")
        return Reason(
            state.number, "vector", vector["vector"],
            f"vector {vector['vector']} of guest {state.number}'s card is "
            "masked with an interrupt pending: the driver does not hear of "
            + (" and ".join(users) or "it"))

    # --------------------------------------------------------- EQ, CQ and SRQ

    def of_eqs(self, state):
        for eq in state.all("eq"):
            unread = distance(eq["producer"], eq["consumer"])
            if unread:
                yield Reason(state.number, "events", eq["eqn"],
                             f"{name('EQ', eq['eqn'], state)}: "
                             + self.eq_clause(state, eq),
                             (eq["consumer"],))

    def eq_clause(self, state, eq):
        unread = distance(eq["producer"], eq["consumer"])
        full = " (it is full)" if unread >= eq["size"] else ""
        lost = " and more were lost" if eq.get("lost") else ""
        return (f"{many(unread, 'event')}{full}{lost} not taken by the driver:"
                f" {self.vector_clause(state, eq)}")

    @staticmethod
    def vector_clause(state, eq):
        number = eq["vector"]
        vector = state.card["vectors"][number]
        raised = vector.get("last-raised")
        if not state.card["msix-enabled"]:
            return "MSI-X is disabled"
        if vector["masked"]:
            pending = " with an interrupt pending" * vector["pending"]
            return f"vector {number} is masked{pending}"
        if vector["suppressed"] and \
                (raised is None or raised < eq.get("last-event", 0)):
            return (f"the interrupt was lost, vector {number} came while "
                    "MSI-X was disabled")
        if raised is None:
            return f"vector {number} was never raised"
        return (f"vector {number} was raised {ago(state.age(raised))} and "
                "nobody served it")

    def unread(self, cq):
        return distance(cq["producer"], cq.get("consumer",
                                               cq["consumer-seen"]))

    def of_cqs(self, state):
        for cq in state.all("cq"):
            who = name("CQ", cq["cqn"], state)
            if "error" in cq:
                yield Reason(state.number, "cq-error", cq["cqn"],
                             f"{who} is in error, and its QPs with it: "
                             f"{cq['error-text']}")
            elif self.unread(cq):
                words, covers = self.unread_clause(state, cq)
                yield Reason(
                    state.number, "unread", cq["cqn"],
                    f"{who}: {many(self.unread(cq), 'completion')} unread, "
                    f"the last came "
                    f"{self.when(state, cq, 'last-completion')}: {words}",
                    (cq.get("consumer"),), covers)

    @staticmethod
    def of_srqs(state):
        return [Reason(state.number, "srq-error", srq["srqn"],
                       f"{name('SRQ', srq['srqn'], state)} is in error, and "
                       "each QP with it that needs a receive: its doorbell "
                       "record or a work request was wrong or not readable")
                for srq in state.all("srq") if srq.get("error")]

    @staticmethod
    def when(state, entry, member):
        return ago(state.age(entry[member])) if entry.get(member) else "never"

    def unread_clause(self, state, cq):
        """(why nobody reads a CQ, what the words cover)."""
        eq = state.get("eq", cq["eqn"])
        if "last-arm" not in cq:
            return "it was never armed, and the program does not poll", ()
        if cq["armed"] == "solicited":
            return ("it is armed for solicited completions, and none of these "
                    "is"), ()
        if cq["armed"] == "any":
            if cq.get("held-back"):
                return "its event waits for more of them (MODIFY_CQ)", ()
            if eq and eq.get("lost"):
                return (f"its event found no room; EQ {eq['eqn']}: "
                        + self.eq_clause(state, eq),
                        ((state.number, "events", eq["eqn"]),))
            return f"it was armed at {cq['armed-at']}, behind them", ()
        if eq and distance(eq["producer"], eq["consumer"]):
            return (f"its event waits in EQ {eq['eqn']}: "
                    + self.eq_clause(state, eq),
                    ((state.number, "events", eq["eqn"]),
                     (state.number, "vector", eq["vector"])))
        return (f"it was armed at {cq['armed-at']}, its event was raised "
                f"{self.when(state, cq, 'last-event')} and the driver took it;"
                " the program does not poll"), ()

    def cq_clause(self, state, cqn):
        """(words on unread completions, what they cover) for a QP's CQ."""
        cq = state.get("cq", cqn)
        if not cq or not self.unread(cq):
            return "", ()
        unread = many(self.unread(cq), "completion")
        verb = "is" if self.unread(cq) == 1 else "are"
        if "last-arm" in cq:
            words = (f"; its CQ {cqn} was armed at {cq['armed-at']} but "
                     f"{unread} {verb} unread")
        else:
            words = f"; {unread} of its CQ {cqn} {verb} unread"
        return words, ((state.number, "unread", cqn),)

    # --------------------------------------------------------------------- QP

    def of_qps(self, state):
        for qp in state.all("qp"):
            reason = self.of_qp(state, qp)
            if reason:
                yield reason

    def of_qp(self, state, qp):
        """The Reason why a QP stands still; None when it does not."""
        if qp["state"] in ("err", "sqe"):
            code, words, covers = "error", *self.error_words(state, qp)
        elif qp["wait"] == "rnr" or self.tries_again(state, qp):
            code, words, covers = "rnr", *self.rnr_words(state, qp)
        elif qp["wait"] == "ack":
            code, words, covers = "ack", self.ack_words(state, qp), ()
        elif qp["wait"] == "sqd":
            code, covers = "sqd", ()
            words = ("is in sqd, and has work requests posted: they are not "
                     "begun before it is in rts again")
        elif qp["wait"] in ("turn", "unknown"):
            code, words, covers = qp["wait"], f"waits for {qp['waits-for']}", ()
        else:
            code, words, covers = *self.idle_words(state, qp), ()
        if not code:
            return None
        return Reason(state.number, code, qp["qpn"],
                      f"{name('QP', qp['qpn'], state)} {words}",
                      (qp["state"], qp["sq-consumer"], qp["unacked-psn"],
                       qp["rq-consumer"]), covers)

    def idle_words(self, state, qp):
        """(code, words) for a QP that has nothing to send."""
        posted = distance(qp.get("rq-posted", 0), qp["rq-consumer"]) \
            if qp["rq-entries"] else 0
        if qp.get("sq-unrung"):
            written = many(qp["sq-unrung"], "work request")
            last = f"last doorbell {ago(state.age(qp['last-post']))}" \
                if qp["last-post"] else "no doorbell was ever rung"
            where = "" if qp["state"] == "rts" else f" (in {qp['state']})"
            return "doorbell", (f"waits for a doorbell{where}: {written} "
                                f"written to its send queue, {last}")
        if qp["state"] == "init" and posted:
            return "init", (f"is in init {since(state.age(qp['state-since']))}"
                            f" with {many(posted, 'receive')} posted: its "
                            "program has not connected it")
        lost = self.lost_peer(state, qp)
        if lost:
            return "peer", lost
        refused = qp.get("last-refused")
        if refused and state.age(refused) < REFUSED_SECONDS and \
                not self.receives(state, qp):
            what = "frames" if qp["type"] == "ETH" else "messages"
            return "refused", (f"({qp['type']}) has no receive posted, and "
                               f"{what} come for it, the last "
                               f"{ago(state.age(refused))}"
                               + self.cq_clause(state, qp["recv-cqn"])[0])
        return None, ""

    def lost_peer(self, state, qp):
        """Words for a connected QP that waits for one that never sends."""
        if qp["type"] not in CONNECTED or not qp["dest-qpn"] or \
                qp["state"] not in ("rtr", "rts"):
            return None
        peer, other, who = self.peer(qp)
        # Of a peer that is not seen nothing is known; a guest or card that
        # is ill is told by itself.
        if not peer or peer.mode != CARD or self.guest_trouble(peer) or \
                self.card_trouble(peer):
            return None
        words = self.unfit(qp, other)
        if not words or other and other["state"] in ("reset", "init") and \
                state.age(qp["state-since"]) < CONNECT_SECONDS:
            return None
        return (f"is in {qp['state']}, but its {who} {words}: nothing will "
                "come")

    @staticmethod
    def receives(state, qp):
        """Receives that are posted to a QP now, by its SRQ if it has one."""
        if "srqn" in qp:
            srq = state.get("srq", qp["srqn"])
            return distance(srq.get("posted", srq["producer"]),
                            srq["consumer"]) if srq else 0
        return distance(qp.get("rq-posted", qp["rq-producer"]),
                        qp["rq-consumer"])

    def error_words(self, state, qp):
        error = qp.get("error", {})
        words = [f"is in {qp['state']} {since(state.age(qp['state-since']))}:"]
        covers = ()
        status = error.get("status")
        if status:
            kind = "receive" if error["receive"] else "send"
            words.append(f"its {kind} {error['wr-id']:#x} failed with "
                         f"'{status}'")
        if error.get("event"):
            words.append(("and " if status else "") +
                         f"'{error['event']}' was raised")
        if qp.get("last-rule-text"):
            words.append(f"by rule {qp['last-rule-text']}")
        elif not error:
            words.append("its own side moved it there, and its work is "
                         "flushed")
        if qp["type"] in CONNECTED and qp["dest-qpn"] and status:
            more = ""
            if "RNR" in status:
                more, covers = self.receive_clause(qp)
            elif "retry" in status:
                more = self.silence(state, qp)
            elif status.startswith("remote"):
                more = self.refusal(qp)
            if more:
                words[-1] += f"; {more}"
        return " ".join(words), covers

    def rnr_words(self, state, qp):
        if qp["rnr-retry-count"] == RNR_FOREVER:
            tries = "retries without end"
        else:
            used = qp["rnr-retry-count"] - qp["rnr-retries-left"]
            tries = f"retry {used} of {qp['rnr-retry-count']}"
        words, covers = self.receive_clause(qp)
        return f"waits on RNR, {tries}: {words}", covers

    def refused(self, qp):
        """(peer's State, its QP) when it refused the oldest packet of qp.

        For want of a receive.  None when it did not, or is not seen.
        """
        peer, other, _who = self.peer(qp)
        if other and other["state"] in ("rtr", "rts", "sqd") and \
                "last-refused" in other and not self.stranger(qp, other) and \
                other["expected-psn"] == qp["unacked-psn"]:
            return peer, other
        return None

    def tries_again(self, state, qp):
        """Whether a QP, that waits on RNR, is just between two tries.

        It waits for an answer then, which is to be the next RNR NAK.
        """
        if qp["wait"] not in ("ack", "turn"):
            return False
        refused = self.refused(qp)
        if not refused or self.card_trouble(state) or self.peer_trouble(qp):
            return False
        peer, other = refused
        return peer.age(other["last-refused"]) < REFUSED_SECONDS and \
            not self.receives(peer, other)

    def receive_clause(self, qp):
        """(what the peer has for a message, what the words cover)."""
        peer, other, who = self.peer(qp)
        if not other:
            return f"{who} has no receive posted", ()
        where = f" in SRQ {other['srqn']}" if "srqn" in other else ""
        count = self.receives(peer, other)
        if count:
            return (f"{who} has {many(count, 'receive')} posted{where} by "
                    "now"), ()
        if "srqn" in other:
            srq = peer.get("srq", other["srqn"]) or {}
            last = self.when(peer, srq, "last-post")
        else:
            last = self.when(peer, other, "last-receive-post")
        words, covers = self.cq_clause(peer, other["recv-cqn"])
        return (f"{who} has no receive posted{where}, last post {last}{words}",
                (*covers, (peer.number, "refused", other["qpn"])))

    def ack_words(self, state, qp):
        used = qp["retry-count"] - qp["retries-left"]
        if "retry-deadline" in qp:
            left = max(0, qp["retry-deadline"] - state.card["clock"]) / 1e9
            tries = (f"{used} of {qp['retry-count']} retries used, the next "
                     f"in {left:.1f} s")
        else:
            tries = "without a timeout"
        if "last-answer" in qp:
            last = f", last answer {ago(state.age(qp['last-answer']))}"
        elif qp["rnr-retries-left"] < qp["rnr-retry-count"] or \
                self.refused(qp):
            last = ", answered by RNR only"
        else:
            last = ", never answered"
        return (f"waits for the acknowledgement of PSN {qp['unacked-psn']}, "
                f"{tries}{last}: {self.silence(state, qp)}")

    # ------------------------------------------------------- the other end

    def peer(self, qp):
        """(guest's State or None, its QP or None, their name) of a QP's peer."""
        words = f"peer QP {qp['dest-qpn']}"
        for state in self.states:
            if state.has_gid(qp["dgid"]):
                other = state.get("qp", qp["dest-qpn"])
                return state, other, f"{words} (guest {state.number})"
        where = snapshot.address(qp["dgid"])
        return None, None, f"{words} ({where}, outside this lab)"

    def peer_trouble(self, qp):
        """Why the peer cannot take packets; None when nothing shows."""
        peer, other, who = self.peer(qp)
        if not peer:
            return f"{who} does not answer"
        trouble = self.guest_trouble(peer)
        if trouble:
            return trouble
        if peer.mode != CARD:
            return f"{who}, of soft-RoCE, does not answer"
        trouble = self.card_trouble(peer)
        if trouble:
            return trouble[1]
        words = self.unfit(qp, other)
        if not words:
            return None
        if other and other["state"] in ("reset", "init"):
            words += ": it takes no packets yet"
        elif other and other["state"] in ("err", "sqe"):
            words = self.error_words(peer, other)[0]
        return f"{who} {words}"

    def unfit(self, qp, other):
        """Words for a peer's QP that does not serve qp; None when it does."""
        if not other:
            return "no longer exists"
        if other["state"] in ("reset", "init", "err", "sqe"):
            return f"is in {other['state']}"
        if other["type"] != qp["type"]:
            return f"is of type {other['type']}, not {qp['type']}"
        return self.stranger(qp, other)

    def stranger(self, qp, other):
        """Words for a peer that is connected to another than qp."""
        if self.peer(other)[1] is qp:
            return None
        return (f"is connected to QP {other['dest-qpn']} at "
                f"{snapshot.address(other['dgid'])}")

    @staticmethod
    def just_sent(state, qp, heard):
        """Whether qp sent only now what its peer, that heard of it, answers.

        heard: how long ago, in seconds.
        """
        if qp["retries-left"] < qp["retry-count"]:
            return False
        sent = qp["retry-deadline"] - qp["ack-timeout"] \
            if "retry-deadline" in qp else qp["last-post"]
        return heard <= state.age(sent) < ANSWER_SECONDS

    def silence(self, state, qp):
        """Why no answer comes."""
        trouble = self.card_trouble(state)
        if trouble:
            return trouble[1]
        trouble = self.peer_trouble(qp)
        if trouble:
            return trouble
        peer, other, who = self.peer(qp)
        if other["wait"] in ("wire", "turn", "device"):
            return f"{who} has not answered yet: {other['waits-for']}"
        expected = other["expected-psn"]
        if psn_after(expected, qp["unacked-psn"]) > 0:
            return (f"{who} has received it (it expects PSN {expected}): its "
                    "answer was lost on the wire")
        facts = (f"(it expects PSN {expected}, last packet from here "
                 f"{self.when(peer, other, 'last-heard')})")
        if "last-heard" in other and \
                self.just_sent(state, qp, peer.age(other["last-heard"])):
            return (f"{who} has heard from here since {facts}: its answer is "
                    "under way")
        return f"{who} has not received it {facts}: it was lost on the wire"

    def refusal(self, qp):
        """Why the peer answered by an error."""
        _peer, other, who = self.peer(qp)
        if other and other.get("last-rule-text"):
            return f"{who} refused it by rule {other['last-rule-text']}"
        return f"{who} refused it" if other else ""

    # ------------------------------------------------------ in good health

    def health(self, state, qp):
        """A sentence about a QP that does not stand still."""
        facts = [f"is in {qp['state']}"]
        if qp["dest-qpn"] and qp["type"] in CONNECTED:
            facts.append(f"connected to {self.peer(qp)[2]}")
        sent = distance(qp["sq-producer"], qp["sq-consumer"])
        if sent:
            facts.append("makes progress (waits for "
                         f"{qp.get('waits-for', 'nothing')})")
        else:
            posted = f"last post {ago(state.age(qp['last-post']))}" \
                if qp["last-post"] else "nothing was ever posted"
            facts.append(f"has nothing to send ({posted})")
        facts.append(many(self.receives(state, qp), "receive") + " posted")
        words, _covers = self.cq_clause(state, qp["recv-cqn"])
        return f"{name('QP', qp['qpn'], state)} {', '.join(facts)}{words}"
