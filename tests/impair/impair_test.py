# SPDX-License-Identifier: GPL-2.0-or-later
"""Guests whose wire loses, doubles, reorders, delays and corrupts frames."""

import contextlib
import json
import re
import threading
import time

from vroce_tool import relay
from vroce_tool.e2e import shape, test
from vroce_tool.guest import CARD, RXE
from vroce_tool.impair import Wire
from vroce_tool.pair import run_pair

CARDS = shape(CARD, CARD, impair=relay.OFF)
CARD_AND_RXE = shape(CARD, RXE, impair=relay.OFF)

BOTH_WAYS = ((1, 2), (2, 1))
XFER = "/artifacts/vroce_xfer -d {dev} -g {gid}"
# So many frames of a program mean that it has set up its connection.
BUSY_FRAMES = 1000


@contextlib.contextmanager
def impaired(bench, text, *happened):
    """A wire with faults; each kind named in happened must have occurred."""
    wire = Wire(bench.lab)
    wire.impair(relay.parse(text))
    try:
        yield wire
        counters = wire.counters()
    finally:
        wire.blackout(0)
        wire.impair(relay.OFF)
    for name in happened:
        assert counters[name], f"nothing was {name}: {counters}"


@contextlib.contextmanager
def when_busy(wire, action):
    """Do action, once, as soon as the program under test is at work."""
    begin = wire.counters()["received"]
    ended, acted = threading.Event(), threading.Event()

    def watch():
        while not ended.wait(0.02):
            if wire.counters()["received"] > begin + BUSY_FRAMES:
                action()
                acted.set()
                return

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
    assert acted.is_set(), "the program ended before the wire was changed"


def xfer(bench, size="4000003", message="100001", guests=(1, 2), options=""):
    """SEND, WRITE and READ, checksums compared; returns their MiB/s."""
    common = f"{XFER} -s {size} -m {message} {options}"
    text = bench.pair(common, f"{common} {{a}}", guests=guests,
                      timeout=240).b.stdout
    rates = re.findall(r"^(\w+) .* ([\d.]+) MiB/s, .* match$", text,
                       re.MULTILINE)
    assert {name for name, _rate in rates} == {"send", "write", "read"}, text
    return {f"{name} MiB/s": float(rate) for name, rate in rates}


# What is done to frames, and what must then have happened to some.
FAULTS = {
    "1 % lost": ("loss=1%", "lost"),
    "5 % lost": ("loss=5%", "lost"),
    "5 % doubled": ("dup=5%", "duplicated"),
    "5 % reordered": ("reorder=5%", "reordered"),
    "each 1 to 3 ms late, in disorder": ("delay=1ms,jitter=2ms", "delayed"),
    "1 % corrupted": ("corrupt=1%", "corrupted"),
    "all of it": ("loss=1%,dup=1%,reorder=1%,corrupt=0.5%,delay=200us",
                  "lost", "duplicated", "reordered", "corrupted", "delayed"),
}


def register_xfer(name, spec, *happened):
    @test(f"SEND, WRITE and READ, frames {name}", lab=CARDS)
    def run(bench):
        with impaired(bench, spec, *happened):
            return xfer(bench)


for _name, _words in FAULTS.items():
    register_xfer(_name, *_words)


def rping(bench, percent, count, size):
    with impaired(bench, f"loss={percent}%", "lost"):
        common = f"rping -v -V -C {count} -S {size} -a {{a}}"
        result = bench.pair(f"{common} -s", f"{common} -c", timeout=400)
    rounds = result.b.stdout.count("ping data: ")
    assert rounds == count, f"{rounds} rounds of {count}"
    return {"rounds": rounds, "s": round(result.b.seconds, 1)}


@test("rping validates, 1 % lost", lab=CARDS)
def rping_1(bench):
    return rping(bench, 1, 100, 64)


@test("rping validates, 5 % lost", lab=CARDS)
def rping_5(bench):
    return rping(bench, 5, 20, 4000)


@test("rping validates 100 rounds of 20000 bytes, 1 % lost", lab=CARDS,
      slow=True)
def rping_1_large(bench):
    return rping(bench, 1, 100, 20000)


@test("rping validates 100 rounds, 5 % lost", lab=CARDS, slow=True)
def rping_5_long(bench):
    return rping(bench, 5, 100, 4000)


@test("128 MiB each way, 5 % lost, 2 % doubled, 2 % reordered", lab=CARDS,
      slow=True)
def xfer_long(bench):
    with impaired(bench, "loss=5%,dup=2%,reorder=2%", "lost", "duplicated",
                  "reordered"):
        for guests in BOTH_WAYS:
            xfer(bench, size="64M", message="1M", guests=guests)


@test("TCP over the netdev, 2 % lost, 1 % doubled, reordered, corrupted",
      lab=CARDS)
def tcp(bench):
    with impaired(bench, "loss=2%,dup=1%,reorder=1%,corrupt=1%", "lost",
                  "corrupted"):
        program = "/vroce/tests/impair/tcp_xfer.py 4"
        result = bench.pair(program, f"{program} {{a}}")
    for side in (result.a, result.b):
        assert "bytes match" in side.stdout, side
    return {"s": round(result.b.seconds, 1)}


def statistic(bench, number, name):
    """A counter of the card of a guest."""
    link, = json.loads(bench.run(number, "rdma -j statistic show"))
    return link[name]


def short_blackout(bench, sender="both"):
    """The wire is dead for less than the retries last: all goes on."""
    before = statistic(bench, 2, "ack_timeout")
    # Eight timeouts of 0.54 to 2.1 s each.
    common = "ib_write_bw -d {dev} -x {gid} -F -s 65536 -u 17 -D 10"
    with impaired(bench, "off", "blackout") as wire, \
            when_busy(wire, lambda: wire.blackout(2, sender)):
        bench.pair(common, f"{common} {{a}}")
    timeouts = statistic(bench, 2, "ack_timeout") - before
    assert timeouts, "no request timed out"
    return {"timeouts": timeouts}


@test("a blackout shorter than the retries is survived", lab=CARDS)
def blackout_short(bench):
    return short_blackout(bench)


@test("so is one of either direction", lab=CARDS, slow=True)
def blackout_one_way(bench):
    for sender in relay.DIRECTIONS:
        short_blackout(bench, sender)


@test("short blackouts spoil no data", lab=CARDS, slow=True)
def blackouts(bench):
    def several():
        for _ in range(20):
            wire.blackout(0.2)
            time.sleep(0.5)

    with impaired(bench, "off", "blackout") as wire, when_busy(wire, several):
        return xfer(bench, options="-n 100")


def long_blackout(bench, program):
    """The wire is dead for good: the requester says so, and can begin anew."""
    # Eight timeouts of 67 to 268 ms each.
    common = f"{program} -d {{dev}} -x {{gid}} -F -s 65536 -u 14 -D 60"
    with impaired(bench, "off", "blackout") as wire:
        with when_busy(wire, lambda: wire.blackout(300)):
            result = run_pair(bench.lab, common, f"{common} {{a}}",
                              timeout=120)
    # 12 is IBV_WC_RETRY_EXC_ERR.
    said = result.b.stdout + result.b.stderr
    assert "Failed status 12:" in said and result.b.status, result
    assert not result.kernel, result.kernel
    return xfer(bench)


@test("a longer blackout is RETRY_EXC_ERR at the requester", lab=CARDS)
def blackout_long(bench):
    return long_blackout(bench, "ib_write_bw")


@test("so it is with SEND and READ", lab=CARDS, slow=True)
def blackout_long_others(bench):
    for program in ("ib_send_bw", "ib_read_bw"):
        long_blackout(bench, program)


# ------------------------------------------------------------- an rxe peer

@test("rxe: SEND, WRITE and READ both ways, 1 % lost", lab=CARD_AND_RXE,
      slow=True)
def rxe_loss(bench):
    with impaired(bench, "loss=1%", "lost"):
        for guests in BOTH_WAYS:
            xfer(bench, size="1000003", message="50001", guests=guests)


@test("rxe: SEND, WRITE and READ both ways, frames doubled, reordered, "
      "corrupted", lab=CARD_AND_RXE, slow=True)
def rxe_rest(bench):
    with impaired(bench, "dup=2%,reorder=1%,corrupt=1%", "duplicated",
                  "reordered", "corrupted"):
        for guests in BOTH_WAYS:
            xfer(bench, size="1000003", message="50001", guests=guests)


@test("rxe: rping, 1 % lost", lab=CARD_AND_RXE, slow=True)
def rxe_rping(bench):
    return rping(bench, 1, 50, 4000)
