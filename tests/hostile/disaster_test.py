# SPDX-License-Identifier: GPL-2.0-or-later
"""What a peer sees, and what is left, when a card or its machine goes away.

Guest 2 is the victim, in the middle of a transfer, and guest 1 the survivor.
"""

import contextlib
import re
import time
from concurrent.futures import ThreadPoolExecutor

from vroce_tool import boot, programs, wire
from vroce_tool.e2e import SMALL, test
from vroce_tool.guest import SCRIPTS
from vroce_tool.pair import run_pair

SURVIVOR, VICTIM = 1, 2

# As vroce_xfer has them. IBA 9.7.6.1.3: one timeout is one to four times
# 4.096 us * 2^17, and the first try and each retry waits for one.
TIMEOUT_SECONDS = 0.54
TRIES = 8

PATIENCE = 60
# No end of it, and not a moment without requests in flight.
XFER = "/artifacts/vroce_xfer -d {dev} -g {gid} -s 4M -m 64K -l 1000000"
PACKETS = 1000      # that make a transfer one that runs
RETRY_EXCEEDED = re.compile(
    r"transport retry counter exceeded .*, ([\d.]+) s after the last one")


def wait(condition, what):
    deadline = time.monotonic() + PATIENCE
    while not (value := condition()):
        assert time.monotonic() < deadline, f"it did not come: {what}"
        time.sleep(0.2)
    return value


class Victim:
    """Guest 2, and how its card can be made to go away."""

    def __init__(self, bench):
        self.bench = bench
        self.guest = bench.guest(VICTIM)
        facts = self.guest.rdma()
        self.device = self.run("readlink -f /sys/class/net/"
                               f"{facts['netdev']}/device").strip()
        self.bdf = self.device.rpartition("/")[2]

    def run(self, command):
        return self.bench.run(VICTIM, command)

    def await_card(self):
        """The driver has it, and its interface its address."""
        self.run(f"{SCRIPTS}/wire-wait {wire.mac(VICTIM)} {self.guest.ipv4}")

    def registers(self, statement):
        """Run Python with the card's registers as the buffer r."""
        self.run("python3 -c " + f"""'
import mmap, os
fd = os.open("{self.device}/resource0", os.O_RDWR | os.O_SYNC)
with memoryview(mmap.mmap(fd, 4096)).cast("I") as r:
    {statement}
'""")

    def boot(self):
        """Boot it again, after its QEMU was killed."""
        boot.boot(self.bench.lab, self.guest, 4 * PATIENCE)
        self.bench.lab.read()

    def rebind(self):
        driver = "/sys/bus/pci/drivers/vroce"
        self.run(f"echo {self.bdf} > {driver}/unbind; "
                 f"echo {self.bdf} > {driver}/bind")


def leftovers(bench, number):
    """What would differ if something were left of a program or a driver."""
    guest = bench.guest(number)
    objects = guest.run(f"rdma resource show dev {guest.rdma()['dev']}").stdout
    interrupts = guest.run("grep -o 'vroce-.*' /proc/interrupts").stdout
    with guest.qmp() as qmp:
        device = {name: len(qmp.execute(f"x-query-vroce-{name}", path="card"))
                  for name in ("qp", "cq", "eq", "mr")}
    return objects.partition(": ")[2], interrupts, device


@contextlib.contextmanager
def nothing_left(bench):
    """Both guests have in the end what they had, and talk to each other."""
    before = [leftovers(bench, number) for number in (SURVIVOR, VICTIM)]
    yield
    for number, had in zip((SURVIVOR, VICTIM), before):
        wait(lambda: leftovers(bench, number) == had,
             f"guest {number} had {had}, has {leftovers(bench, number)}")
    programs.works(bench)


def traffic(guest):
    """RoCE packets that the card of a guest has sent and received."""
    with guest.qmp() as qmp:
        counters = qmp.execute("x-query-vroce", path="card")[0]["counters"]
    return sum(counter["value"] for counter in counters
               if counter["name"] in ("rdma-tx-packets", "rdma-rx-packets"))


def disturbed(bench, op, requester, disturb):
    """Run a transfer, disturb it, and return the pair's Result.

    Requests come from the guest requester, the other one serves them.
    """
    responder = SURVIVOR + VICTIM - requester
    survivor = bench.guest(SURVIVOR)
    before = traffic(survivor)
    with ThreadPoolExecutor(1) as pool:
        pair = pool.submit(
            run_pair, bench.lab, f"{XFER} -o {op}", f"{XFER} -o {op} {{a}}",
            guests=(responder, requester), timeout=3 * PATIENCE, daemon=True)
        wait(lambda: pair.done() or traffic(survivor) > before + PACKETS,
             "traffic")
        assert not pair.done(), pair.result()
        disturb()
        return pair.result()


def survivor_gave_up(result):
    """The survivor, who sent requests, saw its retries run out, in time."""
    assert result.b.status == 1, result
    match = RETRY_EXCEEDED.search(result.b.stderr)
    assert match, result.b.stderr
    seconds = float(match[1])
    assert seconds >= TRIES * TIMEOUT_SECONDS - 0.1, seconds
    assert seconds <= 4 * TRIES * TIMEOUT_SECONDS + 5, seconds
    return {"s until the error": seconds}


def responder_knew_nothing(result):
    """Its card said nothing; that TCP did, or it was ended, does not matter."""
    assert re.fullmatch("(vroce_xfer: the other side is gone.*\n)?"
                        "(Terminated\n)?", result.a.stderr), result.a.stderr


@test("FLR under WRITEs to it: the requester's retries run out", lab=SMALL,
      slow=True)
def function_level_reset(bench):
    victim = Victim(bench)
    with nothing_left(bench):
        result = disturbed(bench, "write", SURVIVOR, lambda: victim.run(
            f"echo flr > {victim.device}/reset_method && "
            f"echo 1 > {victim.device}/reset"))
        victim.await_card()
    return survivor_gave_up(result)


@test("FLR under READs from it: its own program sees the device fail",
      lab=SMALL)
def reset_of_the_requester(bench):
    victim = Victim(bench)
    with nothing_left(bench):
        result = disturbed(bench, "read", VICTIM, lambda: victim.run(
            f"echo 1 > {victim.device}/reset"))
        victim.await_card()
    assert result.b.status == 1, result
    # The event and the end of the completion channel race.
    assert re.search("device failed or is gone|flushed|Input/output error",
                     result.b.stderr), result.b.stderr
    responder_knew_nothing(result)


@test("a fatal PCI Express error under WRITEs to it: the requester's retries "
      "run out, error recovery brings the card back", lab=SMALL, slow=True)
def bus_error(bench):
    victim = Victim(bench)

    def inject():
        # Surprise Down.
        with victim.guest.qmp() as qmp:
            qmp.human("pcie_aer_inject_error card SDN")

    with nothing_left(bench):
        result = disturbed(bench, "write", SURVIVOR, inject)
        wait(lambda: "AER: device recovery successful" in victim.run("dmesg"),
             "the end of the recovery")
        victim.await_card()
    return survivor_gave_up(result)


@test("a reset behind the driver's back under SENDs to it: retries run out, "
      "binding the driver again brings the card back", lab=SMALL, slow=True)
def register_reset(bench):
    victim = Victim(bench)
    with nothing_left(bench):
        # VROCE_REG_RESET, VROCE_RESET_MAGIC
        result = disturbed(bench, "send", SURVIVOR, lambda: victim.registers(
            "r[0x10 // 4] = 0x52534554"))
        victim.rebind()
        victim.await_card()
    return survivor_gave_up(result)


@test("unplugging the card under WRITEs to it: the requester's retries run "
      "out, plugging it in again brings it back", lab=SMALL)
def unplug(bench):
    victim = Victim(bench)

    def qmp(command, **arguments):
        # Not for longer: others talk to it, too.
        with victim.guest.qmp() as connection:
            return connection.execute(command, **arguments)

    def plugged():
        return "card" in [child["name"] for child in qmp(
            "qom-list", path="/machine/peripheral")]

    def device_del():
        qmp("device_del", id="card")
        wait(lambda: not plugged(), "the unplugging")

    with nothing_left(bench):
        result = disturbed(bench, "write", SURVIVOR, device_del)
        qmp("device_add", driver="vroce", id="card", bus="slot1",
            netdev="wire", mac=wire.mac(VICTIM))
        wait(lambda: not victim.guest.run(
            f"{SCRIPTS}/wire-wait {wire.mac(VICTIM)} {victim.guest.ipv4}",
            check=False).returncode, "the card's interface")
    return survivor_gave_up(result)


@test("rdma_cm tells the peer when the card's driver is unbound", lab=SMALL)
def unbind_with_cm(bench):
    victim = Victim(bench)
    common = "rping -v -C 1000000 -S 4096 -a {a}"
    with nothing_left(bench), ThreadPoolExecutor(1) as pool:
        pair = pool.submit(run_pair, bench.lab, f"{common} -s",
                           f"{common} -c > /tmp/rping.log",
                           timeout=3 * PATIENCE, guests=(SURVIVOR, VICTIM))
        wait(lambda: pair.done() or int(bench.run(
            VICTIM, "cat /tmp/rping.log 2> /dev/null | grep -c 'ping data' || "
            "true")) > 10, "traffic")
        victim.rebind()
        result = pair.result()
        victim.await_card()
    assert "DISCONNECT" in result.a.stdout + result.a.stderr, result
    assert not result.kernel, result.kernel


@test("a killed QEMU under WRITEs to it: the requester's retries run out, the "
      "guest boots again on the same wire", lab=SMALL)
def killed(bench):
    victim = Victim(bench)
    with nothing_left(bench):
        result = disturbed(bench, "write", SURVIVOR, lambda: boot.kill(
            bench.lab, victim.guest))
        victim.boot()
    return survivor_gave_up(result)


@test("a killed QEMU under READs by it: the responder waits, the guest boots "
      "again on the same wire", lab=SMALL, slow=True)
def killed_requester(bench):
    victim = Victim(bench)
    with nothing_left(bench):
        result = disturbed(bench, "read", VICTIM, lambda: boot.kill(
            bench.lab, victim.guest))
        victim.boot()
    responder_knew_nothing(result)
