# SPDX-License-Identifier: GPL-2.0-or-later
"""What the command says of real guests and QEMUs that are in trouble."""

import os
import re
import subprocess
import time

from vroce_tool import setup
from vroce_tool.e2e import SMALL, test
from vroce_tool.lab import Lab, Starter, up_options
from vroce_tool.util import REPO, UserError

VROCE = REPO / "scripts" / "vroce"
LAB = f"trouble-{os.getpid()}"
BOOT_SECONDS = 600      # on a machine with much else to do


def vroce(*words, status=1, patterns=()):
    """Run the command; it ends like this, and its message has these."""
    result = subprocess.run([VROCE, *words], text=True, capture_output=True,
                            stdin=subprocess.DEVNULL, timeout=BOOT_SECONDS,
                            check=False)
    assert result.returncode == status, f"{words}: {result}"
    assert "Traceback" not in result.stderr, result.stderr
    for pattern in patterns:
        assert re.search(pattern, result.stderr), \
            f"{words}: no '{pattern}' in:\n{result.stderr}"


def up(*patterns, **options):
    """Start a lab of one guest, which fails with a message that has these."""
    options = up_options(1, **{"lab": LAB, "capture": 0,
                               "timeout": BOOT_SECONDS, **options})
    lab = Lab(LAB)
    try:
        Starter(options, setup.planned()).start().stop()
    except UserError as error:
        message = str(error)
    else:
        raise AssertionError(f"{options} is accepted")
    for pattern in patterns:
        assert re.search(pattern, message), f"no '{pattern}' in:\n{message}"
    assert not lab.folder.exists() and not lab.logs.exists(), lab.folder


@test("properties of the card that QEMU refuses are named", lab=SMALL)
def bad_properties(_bench):
    for word, *patterns in (
            ("qps=5", "Property 'vroce.qps' not found"),
            ("num-qps=1", r"'num-qps' of vroce is 1, it must be 3\.\.4194304"),
            ("num-qps=many", "'num-qps' expects size"),
            ("max-mtu=100000", r"'max-mtu' of vroce .* must be 576\.\.9216"),
            ("vectors=0", r"'vectors' of vroce is 0, it must be 1\.\.64"),
            ("misuse-policy=panic",
             "'misuse-policy' does not accept value 'panic'"),
            ("mac=nonsense", "'vroce.mac' doesn't take value 'nonsense'")):
        up("QEMU of guest1 ended .exit status 1.:", *patterns, card=[word])


@test("options that QEMU refuses are named", lab=SMALL)
def bad_options(_bench):
    up("QEMU of guest1 ended", "'nonesuch' is not a valid device",
       qemu_arg=["-device", "nonesuch"])


@test("a guest that panics while it boots is reported with its console",
      lab=SMALL)
def panic_at_boot(_bench):
    # Without an initramfs there is no driver of the disk either.
    up("guest 1 panicked: .*Kernel panic - not syncing: VFS: Unable to mount "
       "root fs", append=["rdinit=/nonexistent"])


@test("a guest that is not ready in time is shown by its console", lab=SMALL)
def too_late(_bench):
    up(r"guest 1 is not ready after 1 s \(--timeout allows more\); the end of "
       "its console:", timeout=1)


@test("a guest that panics is reported by the command that runs, and can be "
      "booted again", lab=SMALL, slow=True, panics=True)
def panic(bench):
    lab = ["--lab", bench.lab.name]
    began = time.monotonic()
    vroce("pair", *lab, "--timeout", "300", "--a", "ibv_rc_pingpong -d {dev} "
          "-g {gid}", "--b", "echo c > /proc/sysrq-trigger",
          patterns=["guest 2: the kernel reports trouble",
                    "guest 2 panicked: .*sysrq triggered crash"])
    assert time.monotonic() - began < 120
    # It is dead, though its QEMU runs.
    vroce("boot", *lab, "2", patterns=["guest 2 runs; 'vroce boot --kill .*2'"])
    vroce("boot", *lab, "--kill", "2", "--timeout", str(BOOT_SECONDS), status=0)
    vroce("pair", *lab, "--a", "ibv_rc_pingpong -d {dev} -g {gid} -n 10",
          "--b", "ibv_rc_pingpong -d {dev} -g {gid} -n 10 {a}", status=0)
