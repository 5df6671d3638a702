#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Recompute the ICRCs of a capture, independently of the engine.

Scapy's RoCE layer knows RoCEv2 over IPv4; for IPv6, which it leaves out, the
bits that IBA annex A17.3.3 takes as ones are set here.

    icrc.py [--most N] FILE.pcap      exit status 1: a bad ICRC, 2: nothing to check
"""

import argparse
import collections
import struct
import sys
import zlib

from scapy.contrib.roce import BTH
from scapy.layers.inet import UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether
from scapy.utils import RawPcapReader

ROCE_PORT = 4791
ICRC_BYTES = 4


def roce_frame(data):
    """The RoCEv2 frame in data without link padding, or None."""
    frame = Ether(data)
    if UDP not in frame or frame[UDP].dport != ROCE_PORT:
        return None
    start = len(data) - len(frame[UDP].original)
    end = start + frame[UDP].len
    if end > len(data):
        return None         # the capture kept only a part of it
    return Ether(data[:end])


def expected_icrc(frame):
    """The ICRC that the specification gives this frame, as it travels."""
    bth = frame[BTH]
    if IPv6 not in frame:
        return bth.compute_icrc(b"")
    packet = bytearray(frame[IPv6].original[:-ICRC_BYTES])
    udp = len(packet) + ICRC_BYTES - frame[UDP].len
    packet[0] |= 0x0f                               # traffic class, flow label
    packet[1:4] = b"\xff\xff\xff"
    packet[7] = 0xff                                # hop limit
    packet[udp + 6:udp + 8] = b"\xff\xff"           # UDP checksum
    packet[udp + 8 + 4] = 0xff                      # FECN, BECN, reserved
    return struct.pack("<I", zlib.crc32(b"\xff" * 8 + packet))


def check(path, most=64):
    """Check up to `most` frames of each (IP version, opcode).

    Returns {(4 or 6, opcode): [checked, bad]}.
    """
    seen = collections.defaultdict(lambda: [0, 0])
    for data, _meta in RawPcapReader(str(path)):
        # The cheap test first: Scapy takes its time for each frame.
        if struct.pack(">H", ROCE_PORT) not in data[:62]:
            continue
        frame = roce_frame(data)
        if frame is None or BTH not in frame:
            continue
        row = seen[6 if IPv6 in frame else 4, frame[BTH].opcode]
        if row[0] == most:
            continue
        row[0] += 1
        end = len(frame.original)
        row[1] += frame.original[end - ICRC_BYTES:end] != expected_icrc(frame)
    return dict(seen)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--most", type=int, default=64, metavar="N",
                        help="frames to check of each opcode (default 64)")
    parser.add_argument("pcap")
    args = parser.parse_args()
    rows = check(args.pcap, args.most)
    for (version, opcode), (checked, bad) in sorted(rows.items()):
        print(f"IPv{version} opcode {opcode:#04x}: {checked} checked, {bad} bad")
    if not rows:
        print(f"{args.pcap}: no RoCEv2 frame", file=sys.stderr)
        return 2
    return 1 if any(bad for _checked, bad in rows.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
