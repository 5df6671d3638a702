# SPDX-License-Identifier: GPL-2.0-or-later
"""The driver's life while programs use it, seen from outside."""

import time

from vroce_tool.e2e import test
from vroce_tool.reload import reload_guest

TRAFFIC = "ib_write_bw -d {dev} -x {gid} -F -s 65536 -D 8 -e"


@test("reload leaves the wire and the management interface up")
def reload(bench):
    facts = reload_guest(bench.guest(1))
    assert facts["new"] != "none", facts
    bench.run(1, f"ping -c 2 {bench.guest(2).ipv4}")
    common = "ibv_rc_pingpong -d {dev} -g {gid} -c -e -n 100"
    bench.pair(common, f"{common} {{a}}")


@test("rmmod with a verbs context open is refused, and traffic goes on")
def rmmod_busy(bench):
    check = ("sleep 3; if rmmod vroce 2>/tmp/rmmod; then echo unloaded; exit 1;"
             " fi; grep -qi 'in use' /tmp/rmmod")
    bench.pair(TRAFFIC, f"{TRAFFIC} {{a}} & {check} && wait $!")


@test("unbinding the PCI device under traffic tears all down")
def unbind(bench):
    bdf = bench.run(2, "basename $(readlink -f "
                    f"/sys/class/net/{bench.guest(2).rdma()['netdev']}/device)"
                    ).strip()
    driver = "/sys/bus/pci/drivers/vroce"
    began = time.monotonic()
    # The client must end by itself, with an error; its peer's retries run out.
    result = bench.run(2, f"echo {bdf} > {driver}/unbind; echo unbound")
    assert "unbound" in result
    bench.run(2, f"echo {bdf} > {driver}/bind; "
              "/vroce/scripts/vroce_tool/in_guest/wire-wait "
              f"{bench.guest(2).ipv4}")
    assert time.monotonic() - began < 30
    bench.run(2, f"ping -c 2 {bench.guest(1).ipv4}")
