# SPDX-License-Identifier: GPL-2.0-or-later
"""The card behind a virtual IOMMU: all that works without one, and faults."""

import re

from vroce_tool import demo, programs
from vroce_tool.e2e import shape, test
from vroce_tool.guest import CARD

IOMMU = shape(CARD, CARD, iommu=True)

# Those of the demo's programs that check their data.
STEPS = ["ibv_ud_pingpong", "rping, validating", "64 MiB by SEND, checked",
         "64 MiB by WRITE, checked", "64 MiB by READ, checked"]

for step in demo.STEPS:
    test(f"behind an IOMMU: {step.name}", lab=IOMMU,
         slow=step.name not in STEPS)(step.run)


@test("behind an IOMMU: bandwidth", lab=IOMMU)
def bandwidth(bench):
    """Each access of the card is translated anew: what that costs."""
    return {f"{program} MiB/s": programs.bandwidth(
        bench, program, count=300)["MiB/s"]
            for program in ("ib_write_bw", "ib_read_bw")}


@test("behind an IOMMU: the card is, and the IOMMU is strict", lab=IOMMU)
def strict(bench):
    for number in (1, 2):
        with bench.guest(number).qmp() as qmp:
            assert qmp.execute("x-query-vroce", path="card")[0]["iommu"]
        assert "strict" in bench.run(number, "dmesg | grep 'TLB invalidation'")


@test("behind an IOMMU: memory that is not mapped for DMA is an error "
      "completion and an event", lab=IOMMU)
def dma_faults(bench):
    guest = bench.guest(1)
    facts = guest.rdma()
    mark = "vroce_dma_fault: "
    bench.run(1, f"echo begin > /dev/kmsg; insmod /artifacts/vroce_dma_fault.ko"
              f" device={facts['dev']} gid={facts['gid']}", check=False,
              timeout=120)
    log = bench.run(1, "rmmod vroce_dma_fault; dmesg | tac | sed '/begin$/q'"
                    " | tac")
    lines = [line.partition(mark)[2] for line in log.splitlines()
             if mark in line]
    bad = [line for line in lines if line.startswith(("not ok", "# "))]
    plan = [int(line[3:]) for line in lines if re.match(r"1\.\.\d+$", line)]
    good = sum(line.startswith("ok ") for line in lines)
    assert not bad and plan == [good], log
    # It speaks of some of them only.
    assert re.search(r"DMAR: \[DMA (Read|Write)", log), log
    programs.works(bench)
    return {"cases": good}
