# SPDX-License-Identifier: GPL-2.0-or-later
"""The driver's life while programs use it, seen from outside."""

from vroce_tool import programs, wire
from vroce_tool.e2e import test
from vroce_tool.guest import SCRIPTS
from vroce_tool.pair import run_pair
from vroce_tool.reload import reload_guest
from vroce_tool.util import UserError

TRAFFIC = "ib_write_bw -d {dev} -x {gid} -F -s 65536 -D 6"


@test("reload says which program has the card open")
def busy(bench):
    guest = bench.guest(1)
    facts = guest.rdma()
    # A server that nobody asks for anything.
    guest.run(f"ibv_rc_pingpong -d {facts['dev']} -g {facts['gid']} "
              "> /dev/null 2>&1 < /dev/null & echo $! > /run/busy; "
              f"until {SCRIPTS}/card-users | grep -q .; do sleep 0.1; done")
    pid = bench.run(1, "cat /run/busy").strip()
    try:
        reload_guest(guest)
    except UserError as error:
        assert str(error) == (
            f"guest 1: ibv_rc_pingpong (pid {pid}) has the card open; end it "
            "and reload again"), error
    else:
        raise AssertionError("it was reloaded")
    finally:
        # An open device has gone when its process has.
        bench.run(1, f"kill {pid}; rm /run/busy; "
                  f"while test -e /proc/{pid}; do sleep 0.1; done")
    programs.works(bench)


@test("reload leaves a working card")
def reload(bench):
    facts = reload_guest(bench.guest(1))
    assert facts["new"] != "none", facts
    programs.works(bench)


@test("rmmod with a verbs context open is refused, and traffic goes on")
def rmmod_busy(bench):
    client = (f"{TRAFFIC} {{a}} & sleep 3; rmmod vroce 2>&1; "
              "wait $! && test -e /sys/module/vroce")
    result = bench.pair(TRAFFIC, client)
    assert "is in use" in result.b.stdout, result.b.stdout


@test("unbinding the PCI device under traffic ends the traffic, rebinding "
      "brings it back")
def unbind(bench):
    guest = bench.guest(2)
    device = f"/sys/class/net/{guest.rdma()['netdev']}/device"
    bdf = bench.run(2, f"basename $(readlink -f {device})").strip()
    driver = "/sys/bus/pci/drivers/vroce"
    # vroce_xfer sleeps on a completion channel, which tells it of the removal.
    common = ("/artifacts/vroce_xfer -d {dev} -g {gid} -o write -s 8M "
              "-n 10000")
    client = (f"{common} {{a}} > /tmp/xfer & sleep 3; grep -c match /tmp/xfer; "
              f"echo {bdf} > {driver}/unbind && echo unbound; wait $!")
    try:
        result = run_pair(bench.lab, common, client, timeout=90,
                          daemon=True)
    finally:
        bench.run(2, f"echo {bdf} > {driver}/bind; {SCRIPTS}/wire-wait "
                  f"{wire.mac(2)} {guest.ipv4}")
    transfers, *rest = result.b.stdout.split()
    assert int(transfers) > 0 and rest == ["unbound"], result
    assert result.b.status == 1, f"the client did not notice: {result}"
    assert not result.kernel, result.kernel
    programs.works(bench)
