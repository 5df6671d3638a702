# SPDX-License-Identifier: GPL-2.0-or-later
"""Guests that stand still: `vroce stop` and `cont`, debuggers, misuse rules."""

import socket
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from side import test, world  # noqa: E402
from vroce_tool import stopcont  # noqa: E402

# Longer than all retries of the programs below together.
STILL_SECONDS = 4
# So many packets of a program mean that it is in the middle of its work.
BUSY_PACKETS = 50


def statuses(bench):
    found = []
    for guest in bench.lab.guests:
        with guest.qmp() as qmp:
            found.append(qmp.execute("query-status")["status"])
    return found


def wait_for(bench, *wanted, seconds=30):
    """Until the guests are in these states."""
    deadline = time.monotonic() + seconds
    while (found := statuses(bench)) != list(wanted):
        assert time.monotonic() < deadline, f"they are {found}"
        time.sleep(0.05)


def tell(bench, number, command):
    with bench.guest(number).qmp() as qmp:
        qmp.execute(command)


def packets(bench):
    with bench.guest(1).qmp() as qmp:
        counters = qmp.execute("x-query-vroce", path="card")[0]["counters"]
    return next(counter["value"] for counter in counters
                if counter["name"] == "rdma-rx-packets")


@test("stop and cont in the middle of ib_write_bw and rping")
def traffic(bench):
    # 134 ms until a retry, and 7 of them: without the clocks' help this ends.
    writes = "ib_write_bw -d {dev} -x {gid} -F -s 65536 -D 4 -u 14"
    pings = "rping -V -C 200 -S 200 -a {a}"
    results = []
    for server, client in ((writes, f"{writes} {{a}}"),
                           (f"{pings} -s", f"{pings} -c")):
        program = threading.Thread(target=lambda server=server, client=client:
                                   results.append(bench.pair(server, client)))
        before = packets(bench)
        program.start()
        while packets(bench) < before + BUSY_PACKETS and program.is_alive():
            time.sleep(0.05)
        assert program.is_alive(), "a program ended: see above"
        stopcont.change(bench.lab, "stop")
        assert statuses(bench) == ["paused", "paused"]
        time.sleep(STILL_SECONDS)
        stopcont.change(bench.lab, "cont")
        assert statuses(bench) == ["running", "running"]
        program.join()
    assert len(results) == 2, "a program failed: see above"


@test("one guest that is stopped stops its lab, whoever did it")
def together(bench):
    with world(bench) as verbs:
        tell(bench, 2, "stop")
        wait_for(bench, "paused", "paused")
        verbs.says(r"guest 1 stands still \(paused\): "
                   rf"'vroce cont{bench.lab.option}' resumes it")
        tell(bench, 1, "cont")
        wait_for(bench, "running", "running")
        # As fast as it can be asked for.
        for _ in range(10):
            stopcont.change(bench.lab, "stop")
            stopcont.change(bench.lab, "cont")
        time.sleep(0.5)
        wait_for(bench, "running", "running")


@test("a debugger that stops a guest stops its lab")
def debugger(bench):
    path = bench.folder / "gdb.sock"
    with bench.guest(1).qmp() as qmp:
        qmp.human(f"gdbserver unix:{path},server=on,wait=off")
    with socket.socket(socket.AF_UNIX) as gdb:
        # QEMU stops the guest for whoever connects, until it says `continue`.
        gdb.connect(str(path))
        wait_for(bench, "paused", "paused")
        gdb.sendall(b"$c#63")
        wait_for(bench, "running", "running")
        gdb.sendall(b"\x03")
        wait_for(bench, "paused", "paused")
        gdb.sendall(b"$D#44")
        wait_for(bench, "running", "running")
    with bench.guest(1).qmp() as qmp:
        qmp.human("gdbserver none")


@test("a misuse rule that stops a guest stops its lab")
def misuse(bench):
    with world(bench) as verbs:
        one, other = verbs.pair()
        other.do("recv", count=20)
        with bench.guest(2).qmp() as qmp:
            qmp.execute("x-vroce-set-misuse-policy", path="card",
                        policy="stop")
        try:
            # A work request in memory that nobody registered.
            one.side.ask(one.name, "send", lkey=1)
            wait_for(bench, "paused", "paused")
            verbs.says(r"guest 2 stands still \(paused by misuse rule key: no "
                       r"region has this key\): "
                       rf"'vroce cont{bench.lab.option}' resumes it")
        finally:
            with bench.guest(2).qmp() as qmp:
                qmp.execute("x-vroce-set-misuse-policy", path="card",
                            policy="log")
            stopcont.change(bench.lab, "cont")
        wait_for(bench, "running", "running")
        one.side.answer()

