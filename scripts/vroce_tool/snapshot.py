# SPDX-License-Identifier: GPL-2.0-or-later
"""What the cards of a lab's guests hold, as QEMU tells it (qapi/vroce.json)."""

import ipaddress
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from . import wire
from .qmp import QMP
from .util import UserError

# QEMU answers in a few ms unless it hangs, or another client is served.
ANSWER_SECONDS = 10
# Kinds of objects: the member that is their number.
KINDS = {"qp": "qpn", "cq": "cqn", "srq": "srqn", "mr": "key", "eq": "eqn",
         "gid": "index"}


@dataclass
class State:
    """A guest's state at one moment; card is None when it has no vroce."""
    number: int
    mode: str
    alive: bool = True
    answers: bool = True        # QEMU does
    status: str = "running"     # as query-status says
    card: dict = None           # as x-query-vroce says
    objects: dict = field(default_factory=dict)     # kind: {number: object}

    @property
    def running(self):
        return self.alive and self.answers and self.status == "running"

    def get(self, kind, number):
        """An object of a kind of KINDS; None when there is none."""
        return self.objects.get(kind, {}).get(number)

    def all(self, kind):
        return self.objects.get(kind, {}).values()

    def age(self, time):
        """How long ago a time of the card's clock was, in seconds."""
        return max(0, self.card["clock"] - time) / 1e9

    def has_gid(self, gid):
        """Whether packets to that GID come here, or came before it broke."""
        entries = self.all("gid")
        if entries:
            return any(entry["gid"] == gid for entry in entries)
        # Soft-RoCE, no driver or no card: the addresses that the lab gave.
        return address(gid) in {
            ipaddress.ip_address(wire.ipv4(self.number)),
            ipaddress.ip_address(wire.ipv6(self.number)),
            link_local(wire.mac(self.number))}


def address(gid):
    """The IP address that a RoCEv2 GID stands for."""
    value = ipaddress.IPv6Address(gid)
    return value.ipv4_mapped or value


def link_local(mac):
    """The IPv6 address that an interface gives itself, RFC 4291 appendix A."""
    digits = [int(word, 16) for word in mac.split(":")]
    return ipaddress.IPv6Address(bytes(
        [0xfe, 0x80, *[0] * 6, digits[0] ^ 2, *digits[1:3], 0xff, 0xfe,
         *digits[3:]]))


def take(lab, kinds=tuple(KINDS), guests=None):
    """The State of each guest of a lab (or of those given), in order."""
    guests = guests or lab.guests
    # At once: what one waits for, another may do the moment after.
    with ThreadPoolExecutor(len(guests)) as pool:
        return list(pool.map(lambda guest: _take_guest(lab, guest, kinds),
                             guests))


def _take_guest(lab, guest, kinds):
    state = State(guest.number, guest.mode)
    if not lab.process(guest):
        state.alive = False
        return state
    try:
        with QMP(guest.path("qmp.sock"), ANSWER_SECONDS) as qmp:
            state.status = qmp.execute("query-status")["status"]
            cards = qmp.execute("x-query-vroce")
            if not cards:
                return state
            # A guest of a lab has one; a second is somebody's experiment.
            path = cards[0]["qom-path"]
            for kind in kinds:
                state.objects[kind] = {
                    entry[KINDS[kind]]: entry for entry in
                    qmp.execute(f"x-query-vroce-{kind}", path=path)}
            # Last: what happened before then has an age.
            state.card = qmp.execute("x-query-vroce", path=path)[0]
    except UserError:
        # It may have ended in this moment.
        state.alive = bool(lab.process(guest))
        state.answers = False
    return state
