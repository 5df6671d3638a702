# SPDX-License-Identifier: GPL-2.0-or-later
"""The card and a stock soft-RoCE peer judge each other, in both directions."""

import re

from vroce_tool import programs
from vroce_tool.e2e import CARD_AND_RXE, test

BOTH_WAYS = ((1, 2), (2, 1))


@test("rxe: ping", lab=CARD_AND_RXE)
def ping(bench):
    return programs.ping(bench)


@test("rxe: RC and UD ping-pong", lab=CARD_AND_RXE)
def pingpong(bench):
    for guests in BOTH_WAYS:
        for kind, size in (("rc", 4096), ("rc", 20000), ("ud", 1024)):
            common = (f"ibv_{kind}_pingpong -d {{dev}} -g {{gid}} -c -e "
                      f"-s {size} -n 50")
            bench.pair(common, f"{common} {{a}}", guests=guests)


@test("rxe: rping", lab=CARD_AND_RXE)
def rping(bench):
    for guests in BOTH_WAYS:
        common = "rping -v -V -C 10 -S 8000 -a {a}"
        bench.pair(f"{common} -s", f"{common} -c", guests=guests)


@test("rxe: SEND, WRITE and READ, checked", lab=CARD_AND_RXE)
def xfer(bench):
    for guests in BOTH_WAYS:
        common = ("/artifacts/vroce_xfer -d {dev} -g {gid} -s 8000003 "
                  "-m 100001")
        text = bench.pair(common, f"{common} {{a}}", guests=guests).b.stdout
        assert len(re.findall(r"match$", text, re.MULTILINE)) == 3, text


@test("rxe: perftest", lab=CARD_AND_RXE)
def perftest(bench):
    # perftest has as many READs in flight as its peer's device allows, even
    # when its own allows fewer: say how many.
    programs_and_options = (("ib_write_bw", ""), ("ib_send_bw", "-e"),
                            ("ib_read_bw", "-e -o 16"))
    for guests in BOTH_WAYS:
        for program, options in programs_and_options:
            # -u 18: a second until the retry, since rxe needs a while for
            # all that the card may have in flight.
            common = (f"{program} -d {{dev}} -x {{gid}} -F -s 65536 -n 50 "
                      f"-u 18 {options}")
            bench.pair(common, f"{common} {{a}}", guests=guests)
