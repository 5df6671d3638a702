# SPDX-License-Identifier: GPL-2.0-or-later
"""The command `vroce impair`: faults of the wire of a running lab."""

import argparse
import json
import time

from . import relay
from .lab import Lab, add_lab
from .util import Command, UserError

MAX_BLACKOUT = "3600s"
BOTH = "both"


class Wire:
    """The relay of a running lab; sender: the guest whose frames are meant."""

    def __init__(self, lab):
        if lab.spec.get("relay") is None:
            raise UserError(f"the wire of lab '{lab.name}' has no relay: start "
                            f"the lab with 'vroce up 2{lab.option} --impair "
                            "off', or with a SPEC in the place of off")
        self.path = lab.spec["relay"]

    def impair(self, spec, sender=BOTH):
        """Set what happens to frames; counters and fates begin anew."""
        relay.ask(self.path, spec.request(sender))

    def blackout(self, seconds, sender=BOTH):
        """Lose every frame from now on, for that time."""
        relay.ask(self.path, f"blackout {sender} {round(seconds * 1e9)}")

    def directions(self):
        """Dicts: from, to, spec, blackout_seconds, counters, waiting."""
        result = []
        for one in relay.ask(self.path, "status")["directions"]:
            spec = relay.Spec(**one["spec"])
            result.append({
                "from": one["from"], "to": 3 - one["from"], "spec": str(spec),
                "blackout_seconds": one["blackout_ns"] / 1e9,
                "counters": one["counters"], "waiting": one["waiting"]})
        return result

    def counters(self):
        """The counters of both directions, added up."""
        first, second = (one["counters"] for one in self.directions())
        return {name: first[name] + second[name] for name in first}

    def settle(self, seconds=10):
        """Wait until the relay holds no frame back."""
        end = time.monotonic() + seconds
        while any(one["waiting"] for one in self.directions()):
            if time.monotonic() > end:
                raise UserError("the relay still holds frames back: a guest "
                                "does not take them")
            time.sleep(0.01)


def show(directions):
    """The table that people read."""
    rows = [("", *(f"{one['from']} -> {one['to']}" for one in directions))]
    for name in directions[0]["counters"]:
        rows.append((name, *(str(one["counters"][name])
                             for one in directions)))
    rows.append(("waiting", *(str(one["waiting"]) for one in directions)))
    for one in directions:
        blackout = f", no frame for {one['blackout_seconds']:.1f} s more" \
            if one["blackout_seconds"] else ""
        print(f"guest {one['from']} to guest {one['to']}: {one['spec']}"
              f"{blackout}")
    for name, *values in rows:
        print(f"{name:14}" + "".join(f"{value:>14}" for value in values))


def _blackout(text):
    try:
        return relay.duration(MAX_BLACKOUT)(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(
            f"{text}: {error}; write 2s or 300ms, at most "
            f"{MAX_BLACKOUT}") from None


def add_arguments(parser):
    add_lab(parser)
    parser.add_argument("spec", metavar="SPEC", nargs="?", type=relay.argument,
                        help="what happens to frames from now on, as "
                        "'loss=1%%,dup=2%%,reorder=2%%,delay=1ms,"
                        "corrupt=0.1%%,seed=7', or 'off'; without it: what "
                        "has happened since it was set")
    parser.add_argument("--from", metavar="G", dest="sender", type=int,
                        choices=relay.DIRECTIONS,
                        help="only the frames that guest G sends")
    parser.add_argument("--blackout", metavar="TIME", type=_blackout,
                        help="lose every frame for TIME, as 2s or 300ms")
    parser.add_argument("--json", action="store_true",
                        help="print the state as data")


def run(args):
    lab = Lab.load(args.lab)
    wire = Wire(lab)
    sender = args.sender or BOTH
    if args.spec is not None:
        wire.impair(args.spec, sender)
    if args.blackout is not None:
        wire.blackout(args.blackout / 1e9, sender)
    directions = wire.directions()
    if args.json:
        print(json.dumps({"lab": lab.name, "directions": directions},
                         indent=2))
    else:
        show(directions)


COMMANDS = [
    Command("impair", "lose, duplicate, reorder, delay, corrupt frames",
            add_arguments, run,
            "Change what a lab's wire does to frames, and show what it has "
            "done.  The lab must have been started with 'up 2 --impair SPEC' "
            "('--impair off': nothing yet).  The n-th frame of a direction "
            "meets the same fate whenever SPEC is the same."),
]
