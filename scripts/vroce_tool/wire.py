# SPDX-License-Identifier: GPL-2.0-or-later
"""The wire: how the guests' cards are joined, and who has which address.

One guest: QEMU's own network, cut off from the host (restrict=on): the carrier
is there and frames vanish in it.  (A hub's only port, or a socketpair that
nobody reads, would stop the card's transmitter.)  Two: a socketpair whose ends
the two QEMUs inherit (an unconnected datagram socket would hold 11 frames
only).  More: a QEMU without a guest, which runs QEMU's hub over one socketpair
for each guest.  Two with impairments: the relay (see relay.py) between two
socketpairs.
"""

import socket
from typing import NamedTuple

MAX_GUESTS = 32

# Enough for a path MTU of 4096, and for the card's largest Ethernet frame.
MTU = 9000

# The file descriptors that QEMU inherits start here, clear of all others,
# so that the printed commands are the ones that run.
FIRST_FD = 100

# Each QEMU's end of the supervisor's monitor, see runstate.py.
CONTROL_FD = 99

# Room for a path MTU's worth of frames in flight.  The kernel clamps it to
# net.core.wmem_max unless the lab is started as root.
SOCKET_BYTES = 4 << 20

_SO_SNDBUFFORCE = 32
_SO_RCVBUFFORCE = 33


class Wire(NamedTuple):
    """What the supervisor must make for a wire, and what each QEMU gets."""
    pairs: list         # socketpairs, as pairs of file descriptor numbers
    netdevs: list       # per guest: the value of -netdev, id "wire"
    fds: list           # per guest: the descriptors that its QEMU inherits
    hub: list           # arguments of the QEMU that is the hub, or None
    hub_fds: list
    relay_fds: list = []


def plan(count, relay=False):
    """Lay out the wire of that many guests, or of two with a relay."""
    if count == 1:
        return Wire([], ["user,id=wire,restrict=on,ipv6=off"], [[]], None, [])
    if count == 2 and not relay:
        near, far = FIRST_FD, FIRST_FD + 1
        return Wire([(near, far)], [_dgram("wire", near), _dgram("wire", far)],
                    [[near], [far]], None, [])
    pairs = [(FIRST_FD + 2 * i, FIRST_FD + 2 * i + 1) for i in range(count)]
    netdevs = [_dgram("wire", near) for near, _far in pairs]
    fds = [[near] for near, _far in pairs]
    middle = [far for _near, far in pairs]
    if relay:
        return Wire(pairs, netdevs, fds, None, [], middle)
    hub = []
    for number, far in enumerate(middle, 1):
        hub += ["-netdev", _dgram(f"guest{number}", far), "-netdev",
                f"hubport,id=port{number},hubid=0,netdev=guest{number}"]
    return Wire(pairs, netdevs, fds, hub, middle)


def make_pair():
    """A socketpair that holds hundreds of frames."""
    pair = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    for end in pair:
        for force, plain in ((_SO_SNDBUFFORCE, socket.SO_SNDBUF),
                             (_SO_RCVBUFFORCE, socket.SO_RCVBUF)):
            try:
                end.setsockopt(socket.SOL_SOCKET, force, SOCKET_BYTES)
            except PermissionError:
                end.setsockopt(socket.SOL_SOCKET, plain, SOCKET_BYTES)
    return pair


def mac(number):
    """The MAC address of guest number's interface on the wire."""
    return f"52:54:00:77:00:{number:02x}"


def management_mac(number):
    """The MAC address of guest number's interface towards the host."""
    return f"52:54:00:78:00:{number:02x}"


def ipv4(number):
    return f"10.77.0.{number}"


def ipv6(number):
    return f"fd77::{number:x}"


def _dgram(name, fd):
    return f"dgram,id={name},local.type=fd,local.str={fd}"
