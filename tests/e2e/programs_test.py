# SPDX-License-Identifier: GPL-2.0-or-later
"""The usual programs between two guests with the card."""

from vroce_tool import demo, programs
from vroce_tool.e2e import test

# All that the demo does.
for step in demo.STEPS:
    test(step.name)(step.run)


@test("ping with jumbo frames")
def ping_jumbo(bench):
    # 8972 bytes, 8 of ICMP and 20 of IPv4 make a packet of 9000.
    return programs.ping(bench, size=8972)


@test("ping over IPv6")
def ping6(bench):
    return programs.ping6(bench)


@test("ibv_rc_pingpong in one guest")
def loopback(bench):
    common = "ibv_rc_pingpong -d {dev} -g {gid} -c -e -n 200"
    bench.pair(common, f"{common} {{a}}", guests=(1, 1))


@test("ibv_rc_pingpong over IPv6")
def pingpong_ipv6(bench):
    common = "ibv_rc_pingpong -d {dev} -g {gid6} -c -e"
    bench.pair(common, f"{common} {{a}}")


@test("ib_write_bw of every size up to 8 MiB")
def write_all_sizes(bench):
    common = "ib_write_bw -d {dev} -x {gid} -F -a -n 20"
    text = bench.pair(common, f"{common} {{a}}").b.stdout
    row = programs.perftest_row(text)
    assert row["#bytes"] == 8 << 20, text
    return {"MiB/s at 8 MiB": row["BW_average[MiB/sec]"]}


@test("ib_send_bw over UD")
def send_ud(bench):
    return programs.bandwidth(bench, "ib_send_bw", size=2048,
                              options="-c UD")


@test("ib_write_bw with 8 queue pairs")
def write_many_qps(bench):
    return programs.bandwidth(bench, "ib_write_bw", options="-q 8",
                              count=200)


@test("ib_write_bw in both directions")
def write_both_ways(bench):
    return programs.bandwidth(bench, "ib_write_bw", options="-b")


@test("ib_write_bw set up by rdma_cm")
def write_cm(bench):
    common = "ib_write_bw -R -F -s 65536 -n 500"
    text = bench.pair(common, f"{common} {{a}}").b.stdout
    return {"MiB/s": programs.perftest_row(text)["BW_average[MiB/sec]"]}


@test("ib_send_lat and ib_read_lat")
def latencies(bench):
    return {"send us": programs.latency(bench, "ib_send_lat")["us typical"],
            "read us": programs.latency(bench, "ib_read_lat")["us typical"]}


@test("rdma_server and rdma_client")
def rdma_server(bench):
    bench.pair("rdma_server", "rdma_client -s {a}")


@test("vroce_xfer of a length that no MTU divides")
def xfer_odd(bench):
    for op in ("send", "write", "read"):
        programs.xfer(bench, op, size="10000019", message="65537")
