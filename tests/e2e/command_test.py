# SPDX-License-Identifier: GPL-2.0-or-later
"""What `vroce ssh` and its like do with the programs that they run."""

import signal
import subprocess
import time

from vroce_tool.e2e import test
from vroce_tool.util import REPO


def vroce(*words):
    return [str(REPO / "scripts" / "vroce"), *words]


def wait_for(bench, program, present):
    deadline = time.monotonic() + 60
    status = 0 if present else 1
    while bench.guest(1).run(f"pgrep -xf '{program}'",
                             check=False).returncode != status:
        assert time.monotonic() < deadline, \
            f"'{program}' {'did not start' if present else 'still runs'}"
        time.sleep(0.1)


def interrupt(bench, signum, program, *words):
    """Interrupt a command, whose output goes into a pipe, in mid-run."""
    with subprocess.Popen(vroce(*words), stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True,
                          start_new_session=True) as child:
        try:
            wait_for(bench, program, True)
            child.send_signal(signum)
            # The pipe ends only when nothing has it open any more.
            _, errors = child.communicate(timeout=60)
        finally:
            child.kill()
    assert child.returncode == 130, f"exit status {child.returncode}: {errors}"
    wait_for(bench, program, False)


@test("an interrupted command leaves no program in the guest")
def interrupted(bench):
    name = bench.lab.name
    for signum in (signal.SIGINT, signal.SIGTERM):
        interrupt(bench, signum, "sleep 298", "ssh", "--lab", name, "1", "--",
                  "sleep 298; echo not reached")
        interrupt(bench, signum, "dmesg --color=never --follow", "dmesg",
                  "--lab", name, "--follow", "1")
    left = bench.run(1, "ls /run").split()
    assert not [file for file in left if file.startswith("vroce.")], left


@test("ssh passes streams, words and exit status")
def passes(bench):
    ssh = vroce("ssh", "--lab", bench.lab.name, "1", "--")
    for words, given, output, status in (
            (["cat; exit 7"], "a\nb\n", "a\nb\n", 7),
            (["printf", "%s|", "a b", "$HOME"], "", "a b|$HOME|", 0),
            # Not an option of the host's ssh.
            (["-oX"], "", "", 127)):
        result = subprocess.run(ssh + words, input=given, text=True,
                                capture_output=True, timeout=60, check=False)
        assert (result.stdout, result.returncode) == (output, status), result
