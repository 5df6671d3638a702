# SPDX-License-Identifier: GPL-2.0-or-later
"""ICRCs on the wire, recomputed by software that shares no code with ours."""

import re
import subprocess

from vroce_tool import programs
from vroce_tool.capture import Capture
from vroce_tool.e2e import test
from vroce_tool.util import REPO

CHECKER = REPO / "tests" / "interop" / "icrc.py"


def pingpong_ipv6(bench):
    common = "ibv_rc_pingpong -d {dev} -g {gid6} -c -e -n 20"
    bench.pair(common, f"{common} {{a}}")


OPERATIONS = {
    "SEND": lambda bench: programs.xfer(bench, "send", "200003", "20001"),
    "WRITE": lambda bench: programs.xfer(bench, "write", "200003", "20001"),
    "READ": lambda bench: programs.xfer(bench, "read", "200003", "20001"),
    "UD SEND": lambda bench: programs.pingpong(bench, "ud", 1001, count=20),
    "rdma_cm": lambda bench: programs.rping(bench, count=3),
    "SEND over IPv6": pingpong_ipv6,
}


def register(name, operation):
    @test(f"ICRCs of {name}")
    def run(bench):
        path = bench.folder / "icrc.pcap"
        with Capture(bench.lab, path):
            operation(bench)
        result = subprocess.run([CHECKER, path], text=True, check=False,
                                capture_output=True)
        assert result.returncode == 0, result.stdout + result.stderr
        checked = sum(map(int, re.findall(r"(\d+) checked", result.stdout)))
        assert checked >= 10, f"only {checked} frames were captured"
        return {"frames": checked}


for _name, _operation in OPERATIONS.items():
    register(_name, _operation)
