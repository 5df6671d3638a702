# SPDX-License-Identifier: GPL-2.0-or-later
"""ICRCs on the wire, recomputed by scapy: software that knows no vroce."""

from vroce_tool import programs
from vroce_tool.capture import Capture
from vroce_tool.e2e import Skip, test

OPERATIONS = {
    "SEND": lambda bench: programs.xfer(bench, "send", "200003", "20001"),
    "WRITE": lambda bench: programs.xfer(bench, "write", "200003", "20001"),
    "READ": lambda bench: programs.xfer(bench, "read", "200003", "20001"),
    "UD SEND": lambda bench: programs.pingpong(bench, "ud", 1001, count=20),
    "rdma_cm": lambda bench: programs.rping(bench, count=3),
}


def check(path):
    """Recompute the ICRC of each RoCEv2 frame; returns how many there were."""
    try:
        # Importing scapy takes a second: only when the test runs.
        from scapy.contrib.roce import BTH
        from scapy.utils import PcapReader
    except ImportError:
        raise Skip("scapy (package python3-scapy) is not installed") from None
    count = 0
    with PcapReader(str(path)) as frames:
        for index, frame in enumerate(frames, 1):
            if BTH not in frame:
                continue
            count += 1
            bth = frame[BTH]
            expected = bth.compute_icrc(None)
            found = bth.pack_icrc(bth.icrc)[::-1]
            assert found == expected, (
                f"frame {index}: ICRC {found.hex()}, scapy computes "
                f"{expected.hex()}\n{frame.show(dump=True)}")
    return count


def register(name, operation):
    @test(f"ICRCs of {name}")
    def run(bench):
        path = bench.folder / "icrc.pcap"
        with Capture(bench.lab, path):
            operation(bench)
        count = check(path)
        assert count >= 10, f"only {count} RoCEv2 frames were captured"
        return {"frames": count}


for _name, _operation in OPERATIONS.items():
    register(_name, _operation)
