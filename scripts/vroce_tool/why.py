# SPDX-License-Identifier: GPL-2.0-or-later
"""The command `vroce why`: why nothing moves between the guests."""

import json
import time

from . import relay, snapshot
from .guest import CARD, RXE
from .impair import Wire
from .lab import Lab, add_lab
from .reasons import View
from .snapshot import KINDS
from .util import Command, UserError

# What has not moved for so long stands still.
CONFIRM_SECONDS = 1
# The exit status of `vroce why` when something stands still.
WAITS = 3
# What sentences() begins with when nothing stands still.
NOTHING = "nothing waits in the cards"
# MRs say nothing about who waits for whom.
LOOKED_AT = tuple(kind for kind in KINDS if kind != "mr")


def observe(lab):
    """The View of a lab now."""
    return View(snapshot.take(lab, LOOKED_AT), lab.name)


def confirmed(lab):
    """(View, reasons that hold for a second without any progress)."""
    view = observe(lab)
    before = view.reasons()
    if not before:
        return view, []
    time.sleep(CONFIRM_SECONDS)
    view = observe(lab)
    held = [reason.since(before) for reason in view.reasons()]
    return view, [reason for reason in held if reason]


def notes(lab, view):
    """Lines on what may be the cause and is seen in no card."""
    lines = [f"guest {state.number} is soft-RoCE: its side is not seen"
             for state in view.states if state.mode == RXE]
    if lab.spec.get("relay") is None:
        return lines
    try:
        directions = Wire(lab).directions()
    except UserError as error:
        return [*lines, str(error)]
    for one in directions:
        way = f"from guest {one['from']} to guest {one['to']}"
        if one["blackout_seconds"]:
            lines.append(f"the relay loses every frame {way}, for "
                         f"{one['blackout_seconds']:.1f} s more")
        elif one["spec"] != str(relay.OFF):
            lines.append(f"the relay impairs frames {way}: {one['spec']}")
    return lines


def sentences(lab):
    """Lines for whoever waited in vain: what stands still, or each QP."""
    if not any(guest.mode == CARD for guest in lab.guests):
        return []
    try:
        view, found = confirmed(lab)
    except UserError as error:
        # It is asked when something has failed already.
        return [f"why nothing moves cannot be told: {error}"]
    if found:
        told = [reason.sentence for reason in found]
    else:
        told = [NOTHING, *(
            view.health(state, qp) for state in view.states if state.card
            for qp in state.all("qp") if qp["dest-qpn"])]
    return told + notes(lab, view)


def about(lab, view, found, qpn):
    """(reasons, sentences of health) of the QPs with that number."""
    reasons, health = [], []
    for state in view.states:
        qp = state.get("qp", qpn)
        if not qp:
            continue
        mine = [reason for reason in found
                if reason.ails(state.number, qpn)]
        reasons += mine
        if not mine:
            health.append(view.health(state, qp))
    if not reasons and not health:
        raise UserError(f"no guest has a QP {qpn}: 'vroce inspect"
                        f"{lab.option} qp' lists them")
    return reasons, health


def add_arguments(parser):
    add_lab(parser)
    parser.add_argument("qpn", metavar="QP", nargs="?", type=int,
                        help="about this QP, even when it is well")
    parser.add_argument("--json", action="store_true",
                        help="print it as data")


def run(args):
    lab = Lab.load(args.lab)
    if not any(guest.mode == CARD for guest in lab.guests):
        raise UserError(f"no guest of lab '{lab.name}' has the card")
    view, found = confirmed(lab)
    health = []
    if args.qpn is not None:
        found, health = about(lab, view, found, args.qpn)
    beside = notes(lab, view)
    if args.json:
        print(json.dumps({"waits": [reason.data() for reason in found],
                          "well": health, "notes": beside}, indent=2))
    else:
        told = [reason.sentence for reason in found] + health
        print("\n".join((told or ["nothing waits"]) + beside))
    return WAITS if found else 0


COMMANDS = [
    Command("why", "why nothing moves", add_arguments, run,
            "Say in a sentence for each thing that stands still what it waits "
            "for, joining what the cards of all guests know: what has not "
            "moved for a second.  The exit status is 0 when nothing waits and "
            f"{WAITS} when something does."),
]
