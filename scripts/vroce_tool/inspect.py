# SPDX-License-Identifier: GPL-2.0-or-later
"""The command `vroce inspect`: what the guests' cards hold, as tables."""

import argparse
import json

from . import snapshot
from .guest import CARD
from .lab import Lab, add_lab
from .snapshot import KINDS
from .util import Command, UserError

# What is a part of the card itself, not an object that a driver made.
PARTS = ("port", "vector", "counter", "misuse")
# What people look for first in an object; the rest is in alphabetical order.
FIRST = ("qpn", "type", "state", "dest-qpn", "dgid", "cqn", "srqn", "key",
         "eqn", "index", "vector", "rule", "name", "kind")
# Times of the card's clock; of some, 0 means never.
TIMES = {"last", "last-answer", "last-arm", "last-completion", "last-event",
         "last-heard", "last-post", "last-raised", "last-receive-post",
         "last-refused", "state-since", "time"}
DEADLINES = {"retry-deadline", "rnr-deadline"}
# The length of a region that is all of memory.
ALL = 2 ** 64 - 1


def _ago(state, entry, name):
    return f"{state.age(entry[name]):.3f} s" if name in entry else "-"


def _length(mr):
    return "all" if mr["length"] == ALL else mr["length"]


def _ring(producer, consumer, size):
    return f"{producer - consumer & 0xffffffff}/{size}" if size else "-"


def _peer(_state, qp):
    if not qp["dest-qpn"]:
        return "-"
    return f"{qp['dest-qpn']} {snapshot.address(qp['dgid'])}"


# Per kind: titles of the columns, and what they hold of an object.
COLUMNS = {
    "qp": {
        "QP": lambda s, q: q["qpn"],
        "TYPE": lambda s, q: q["type"],
        "STATE": lambda s, q: q["state"],
        "PEER": _peer,
        "SEND": lambda s, q: _ring(q["sq-producer"], q["sq-consumer"],
                                   q["sq-units"]),
        "RECV": lambda s, q: _ring(q.get("rq-posted", q["rq-producer"]),
                                   q["rq-consumer"], q["rq-entries"]),
        "PSN": lambda s, q: q["send-psn"],
        "UNACKED": lambda s, q: q["unacked-psn"],
        "EXPECTED": lambda s, q: q["expected-psn"],
        "CQS": lambda s, q: f"{q['send-cqn']},{q['recv-cqn']}",
        "LAST POST": lambda s, q: _ago(s, q, "last-post")
        if q["last-post"] else "-",
        "WAITS FOR": lambda s, q: q.get("waits-for", "-"),
    },
    "cq": {
        "CQ": lambda s, c: c["cqn"],
        "EQ": lambda s, c: c["eqn"] if c["eqn"] != 0xffffffff else "-",
        "UNREAD": lambda s, c: _ring(
            c["producer"], c.get("consumer", c["consumer-seen"]), c["size"]),
        "PRODUCED": lambda s, c: c["producer"],
        "ARMED": lambda s, c: c["armed"],
        "AT": lambda s, c: c["armed-at"] if "last-arm" in c else "-",
        "QUEUES": lambda s, c: c["users"],
        "LAST COMPLETION": lambda s, c: _ago(s, c, "last-completion"),
        "LAST EVENT": lambda s, c: _ago(s, c, "last-event"),
        "ERROR": lambda s, c: c.get("error", "-"),
    },
    "srq": {
        "SRQ": lambda s, q: q["srqn"],
        "PD": lambda s, q: q["pdn"],
        "POSTED": lambda s, q: _ring(q.get("posted", q["producer"]),
                                     q["consumer"], q["entries"]),
        "LIMIT": lambda s, q: q["limit"] or "-",
        "QPS": lambda s, q: q["users"],
        "LAST POST": lambda s, q: _ago(s, q, "last-post"),
        "ERROR": lambda s, q: "yes" if q.get("error") else "-",
    },
    "mr": {
        "KEY": lambda s, m: f"{m['key']:#x}",
        "KIND": lambda s, m: m["kind"],
        "PD": lambda s, m: m["pdn"],
        "ACCESS": lambda s, m: f"{m['access']:#x}",
        "ADDRESS": lambda s, m: f"{m['iova']:#x}",
        "LENGTH": lambda s, m: _length(m),
        "PAGES": lambda s, m: m["pages"],
        "OF BYTES": lambda s, m: m.get("page-size", "-"),
        "VALID": lambda s, m: "yes" if m["valid"] else "no",
    },
    "eq": {
        "EQ": lambda s, e: e["eqn"],
        "VECTOR": lambda s, e: e["vector"],
        "UNREAD": lambda s, e: _ring(e["producer"], e["consumer"], e["size"]),
        "ARMED": lambda s, e: "yes" if e["armed"] else "no",
        "FOR": lambda s, e: "async" if e["async"] else "completions",
        "OVERRUN": lambda s, e: "yes" if e["overrun"] else "no",
        "LAST EVENT": lambda s, e: _ago(s, e, "last-event"),
        "LAST ARM": lambda s, e: _ago(s, e, "last-arm"),
    },
    "gid": {
        "INDEX": lambda s, g: g["index"],
        "GID": lambda s, g: g["gid"],
        "ADDRESS": lambda s, g: snapshot.address(g["gid"]),
        "MAC": lambda s, g: g["mac"],
        "VLAN": lambda s, g: g.get("vlan", "-"),
    },
    "port": {
        "LINK": lambda s, p: "up" if p["link-up"] else "down",
        "WIRE": lambda s, p: "full" if p["tx-blocked"] else "free",
        "MAC": lambda s, p: p["mac"],
        "NETDEV": lambda s, p: p.get("netdev", "-"),
        "ENABLED": lambda s, p: "yes" if p["enabled"] else "no",
        "BUS MASTER": lambda s, p: "on" if p["bus-master"] else "off",
        "IOMMU": lambda s, p: "yes" if p["iommu"] else "no",
        "MSI-X": lambda s, p: "on" if p["msix-enabled"] else "off",
        "FATAL": lambda s, p: p["fatal"] or "-",
        "COMMANDS": lambda s, p: _ring(p["command-queue"]["producer"],
                                       p["command-queue"]["completed"],
                                       p["command-queue"]["size"]),
        "LAST SENT": lambda s, p: _ago(s, p, "last-frame-sent"),
        "LAST RECEIVED": lambda s, p: _ago(s, p, "last-frame-received"),
    },
    "vector": {
        "VECTOR": lambda s, v: v["vector"],
        "RAISED": lambda s, v: v["raised"],
        "SUPPRESSED": lambda s, v: v["suppressed"],
        "MASKED": lambda s, v: "yes" if v["masked"] else "no",
        "PENDING": lambda s, v: "yes" if v["pending"] else "no",
        "LAST RAISED": lambda s, v: _ago(s, v, "last-raised"),
    },
    "counter": {
        "COUNTER": lambda s, c: c["name"],
        "VALUE": lambda s, c: c["value"],
    },
    "misuse": {
        "RULE": lambda s, m: m["rule"],
        "NAME": lambda s, m: m["name"],
        "COUNT": lambda s, m: m["count"],
        "LAST": lambda s, m: _ago(s, m, "last"),
        "MEANING": lambda s, m: m["text"],
    },
}


def entries(state, kind):
    """All objects of a kind that a guest has."""
    if kind == "port":
        return [state.card]
    if kind in PARTS:
        return state.card[{"vector": "vectors", "counter": "counters",
                           "misuse": "misuse"}[kind]]
    return list(state.all(kind))


def select(state, kind, number):
    """The objects of a kind, or only the one with that number."""
    found = entries(state, kind)
    if number is None:
        return found
    name = KINDS.get(kind, {"vector": "vector", "misuse": "rule"}.get(kind))
    return [entry for entry in found if entry.get(name) == number]


def table(rows):
    """Lines of a table; the first row holds the titles."""
    rows = [[str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows)]
    return ["  ".join(cell.ljust(width) for cell, width
                      in zip(row, widths)).rstrip() for row in rows]


def _rank(name):
    return FIRST.index(name) if name in FIRST else len(FIRST), name


def _detail(state, entry, name):
    """A member of an object as people read it."""
    if name in TIMES:
        return _ago(state, entry, name) + " ago" if entry[name] else "never"
    if name in DEADLINES:
        left = max(0, entry[name] - state.card["clock"]) / 1e9
        return f"in {left:.3f} s"
    if name == "ack-timeout":
        return f"{entry[name] / 1e9:.3f} s"
    return _length(entry) if name == "length" else entry[name]


def details(state, entry, indent="  "):
    """Lines that tell all members of an object."""
    lines = []
    for name in sorted(entry, key=_rank):
        if isinstance(entry[name], dict):
            lines += [f"{indent}{name}:",
                      *details(state, entry[name], indent + "  ")]
        elif not isinstance(entry[name], list):
            lines.append(f"{indent}{name}: {_detail(state, entry, name)}")
    return lines


def show(states, kinds, number):
    for state in states:
        if state.mode != CARD or not state.card:
            why = ("its QEMU has ended" if not state.alive else
                   "it has no vroce card" if state.answers else
                   "its QEMU does not answer")
            print(f"guest {state.number}: {why}")
            continue
        for kind in kinds:
            found = select(state, kind, number)
            title = f"guest {state.number}, {kind}:"
            if number is not None:
                for entry in found:
                    print("\n".join([title, *details(state, entry)]))
            elif not found:
                print(title, "none")
            else:
                print(title)
                columns = COLUMNS[kind]
                rows = [columns] + [[column(state, entry) for column
                                     in columns.values()] for entry in found]
                print("\n".join(f"  {line}" for line in table(rows)))


def number(text):
    try:
        return int(text, 0)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"'{text}' is not a number, as 17 or 0x1200") from None


def add_arguments(parser):
    add_lab(parser)
    kinds = (*KINDS, *PARTS)
    parser.add_argument("kind", metavar="KIND", nargs="?", choices=kinds,
                        help=f"what to list, of {', '.join(kinds)} (default: "
                        "all but counter and misuse)")
    parser.add_argument("number", metavar="NUMBER", nargs="?", type=number,
                        help="all that is known of the one with this number")
    parser.add_argument("--guest", metavar="G", type=int,
                        help="only of this guest")
    parser.add_argument("--json", action="store_true",
                        help="print it as data, as QEMU tells it")


def run(args):
    lab = Lab.load(args.lab)
    guests = lab.guests if args.guest is None else [lab.guest(args.guest)]
    kinds = [args.kind] if args.kind else [*KINDS, "port", "vector"]
    if args.number is not None and args.kind in ("port", "counter"):
        raise UserError(f"a {args.kind} has no number")
    states = snapshot.take(lab, [kind for kind in kinds if kind in KINDS],
                           guests)
    found = {state.number: {kind: select(state, kind, args.number)
                            for kind in kinds}
             for state in states if state.card}
    if args.number is not None and not any(
            entry[args.kind] for entry in found.values()):
        where = f"guest {args.guest} has" if args.guest else \
            f"no guest of lab '{lab.name}' has"
        raise UserError(f"{where} {'no' if args.guest else 'a'} {args.kind} "
                        f"{args.number}")
    if args.json:
        print(json.dumps({"guests": [
            {"guest": number, **kinds} for number, kinds in found.items()]},
            indent=2))
    else:
        show(states, kinds, args.number)


COMMANDS = [
    Command("inspect", "what the cards of the guests hold", add_arguments, run,
            "Show the objects of all guests' cards as tables; with a NUMBER "
            "all that is known of one.  Times are ages by the guest's clock."),
]
