# SPDX-License-Identifier: GPL-2.0-or-later
"""A peer that is gone.  The last of the tests: they leave guest 1 alone."""

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from side import test, world  # noqa: E402
from vroce_tool.boot import kill  # noqa: E402


@test("the peer's card is unplugged, then its machine ends")
def gone(bench):
    with world(bench) as verbs:
        one, other = verbs.qp(1), verbs.qp(2)
        one.connect(other, timeout=22)
        other.connect(one)
        verbs.end(2)
        verbs.qps.remove(other)
        with bench.guest(2).qmp() as qmp:
            qmp.execute("device_del", id="card")
        one.do("send")
        waits = rf"QP {one.qpn} \(guest 1\) waits for the acknowledgement.*: "
        words = "guest 2 has no vroce card: it was unplugged"
        verbs.says(words, seconds=30)
        verbs.says(waits + words)
        kill(bench.lab, bench.guest(2))
        time.sleep(0.5)
        words = "guest 2 is gone: its QEMU has ended"
        verbs.says(words)
        verbs.says(waits + words)
        verbs.all_well = False
