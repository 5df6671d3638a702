# SPDX-License-Identifier: GPL-2.0-or-later
"""The life of a lab's processes, with programs in the place of QEMU."""

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
import unittest
from pathlib import Path
from unittest import mock

sys.path[:0] = [str(Path(__file__).resolve().parents[2] / "scripts"),
                str(Path(__file__).resolve().parent)]

from support import Folders, artifacts  # noqa: E402
from vroce_tool import boot, lab, supervise, wire  # noqa: E402
from vroce_tool.util import UserError  # noqa: E402


def gone(pid):
    """Whether a process runs no more; a zombie does not run."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return True
    return stat.rpartition(")")[2].split()[0] == "Z"


class Life(Folders):
    def start(self, name="a", argv=("sleep", "60"), second=None):
        """A supervised lab of two guests that run argv, the second one second
        if that is given; returns it, its supervisor and the end of the pipe by
        which it knows that `up` lives."""
        starter = lab.Starter(lab.up_options(2, lab=name), artifacts())
        lock = starter._claim()
        reader, owner = os.pipe()
        spec = starter.spec()
        for process in spec["processes"]:
            process["argv"] = list(argv)
        if second:
            process["argv"] = list(second)
        one = starter.lab
        one.spec = spec
        one.save()
        supervisor = starter._spawn(reader, lock)
        os.close(reader)
        os.close(lock)
        self.addCleanup(self.reap, supervisor, one)
        self.wait(lambda: one.state)
        return one, supervisor, owner

    def reap(self, supervisor, one):
        supervisor.kill()
        supervisor.wait()
        one.remove()

    def wait(self, condition, seconds=20):
        deadline = time.monotonic() + seconds
        while not condition():
            self.assertLess(time.monotonic(), deadline, "it never came true")
            time.sleep(0.02)

    def pids(self, one):
        return [process["pid"] for process in one.state.values()]

    def keep(self, owner):
        """What a successful `up` does."""
        os.write(owner, b"k")
        os.close(owner)

    def test_down_leaves_nothing(self):
        one, supervisor, owner = self.start()
        self.keep(owner)
        self.assertTrue(one.running())
        pids = self.pids(one)
        reaper = threading.Thread(target=supervisor.wait)
        reaper.start()
        one.stop()
        reaper.join()
        self.assertTrue(all(map(gone, pids)))
        self.assertFalse(one.folder.exists() or one.logs.exists())

    def test_the_end_of_up_ends_the_lab(self):
        one, supervisor, owner = self.start()
        pids = self.pids(one)
        os.close(owner)
        supervisor.wait(20)
        self.assertTrue(all(map(gone, pids)))
        self.assertFalse(one.folder.exists() or one.logs.exists())

    def test_a_killed_supervisor_takes_its_guests_along(self):
        one, supervisor, owner = self.start()
        self.keep(owner)
        pids = self.pids(one)
        supervisor.kill()
        supervisor.wait()
        self.wait(lambda: all(map(gone, pids)))
        self.assertFalse(one.running())
        with self.assertRaisesRegex(UserError, "has ended"):
            lab.Lab.load("a")
        one.stop()
        self.assertFalse(one.folder.exists())

    def test_guests_that_end_are_noted(self):
        one, supervisor, owner = self.start(argv=("sh", "-c", "exit 3"))
        self.keep(owner)
        supervisor.wait(20)
        self.assertEqual(one.state["guest1"]["exit"], 3)
        self.assertFalse(one.running())
        self.assertTrue(one.logs.exists())

    def boot_again(self, one, number):
        """Ask for it and wait for what would be its readiness."""
        with mock.patch.object(boot, "await_ready"), \
                contextlib.redirect_stderr(io.StringIO()):
            boot.boot(one, one.guest(number), 20)

    def test_a_guest_that_was_killed_boots_again(self):
        one, supervisor, owner = self.start()
        self.keep(owner)
        before = self.pids(one)
        with self.assertRaisesRegex(UserError, "guest 1 runs; 'vroce boot "
                                    "--kill --lab a 1' ends it"):
            self.boot_again(one, 1)
        boot.kill(one, one.guest(1))
        self.assertEqual(one.state["guest1"]["exit"], -signal.SIGKILL)
        self.boot_again(one, 1)
        after = self.pids(one)
        self.assertEqual([old == new for old, new in zip(before, after)],
                         [True, False, True])
        self.assertFalse(gone(after[1]))
        boot.kill(one, one.guest(1))
        self.boot_again(one, 1)
        self.assertTrue(one.running())

    def test_nobody_waits_for_a_guest_that_has_ended(self):
        done = self.folder / "done"
        # More than the wire holds, from guest 2's end of it.
        one, supervisor, owner = self.start(second=(
            sys.executable, "-c", f"""
import os
for _ in range(64 << 10):
    os.write({wire.FIRST_FD + 1}, bytes(1000))
open({str(done)!r}, "w").close()
"""))
        self.keep(owner)
        self.assertFalse(done.exists())
        boot.kill(one, one.guest(1))
        self.wait(done.exists)

    def test_what_a_boot_that_fails_says(self):
        one, supervisor, owner = self.start()
        self.keep(owner)
        for words, text in ((["boot", "3"], "has no guest 3: it has guests 1 "
                             "to 2"),
                            (["boot", "1"], "guest 1 runs"),
                            (["boot", "1", "--lab", "b"], "no lab 'b'")):
            with self.subTest(words=words):
                result = self.vroce(*words[:2], *(words[2:] or
                                                  ["--lab", "a"]))
                self.assertEqual(result.returncode, 1)
                self.assertIn(text, result.stderr)
        one.guest(1).log("qemu").write_text("qemu: out of luck\n")
        one.guest(1).log("ready").write_text("failed: no card\n")
        with self.assertRaisesRegex(UserError, "not ready: no card"):
            boot.await_ready(one, [one.guest(1)], 1, mock.Mock())
        one.guest(1).log("ready").unlink()
        one.guest(1).log("console").write_text("[ 1.0] Linux\n")
        with self.assertRaisesRegex(UserError, "(?s)not ready after 1 s "
                                    ".--timeout allows more.*Linux"):
            boot.await_ready(one, [one.guest(1)], 1, mock.Mock())
        one.guest(1).log("console").write_text(
            "[ 1.0] Kernel panic - not syncing: no init\n")
        with contextlib.redirect_stderr(io.StringIO()), \
                self.assertRaisesRegex(UserError, "guest 1 panicked: .*init"):
            boot.await_ready(one, [one.guest(1)], 5, mock.Mock())
        boot.kill(one, one.guest(1))
        with self.assertRaisesRegex(UserError, "(?s)QEMU of guest1 ended .exit "
                                    "status -9.:.*out of luck$"):
            boot.await_ready(one, [one.guest(1)], 1, mock.Mock())
        one.spec["accel"] = "kvm"
        one.guest(1).log("qemu").write_text("kvm_foo: Assertion failed\n")
        with self.assertRaisesRegex(UserError, "KVM does not work here: "
                                    "--accel tcg"):
            boot.await_ready(one, [one.guest(1)], 1, mock.Mock())

    def test_busy_name(self):
        _one, _supervisor, owner = self.start()
        other = lab.Starter(lab.up_options(1, lab="a"), artifacts())
        with self.assertRaisesRegex(UserError, "already running.*--lab NAME"):
            other.start()
        os.close(owner)

    def test_two_labs_side_by_side(self):
        first, supervisor, owner1 = self.start("a")
        second, _, owner2 = self.start("b")
        self.assertTrue(first.running() and second.running())
        self.assertEqual([one.name for one in lab.Lab.all()], ["a", "b"])
        os.close(owner1)
        supervisor.wait(20)
        self.assertFalse(first.running())
        self.assertTrue(second.running())
        os.close(owner2)

    def test_a_reused_pid_is_not_killed(self):
        one, supervisor, owner = self.start()
        os.close(owner)
        supervisor.wait(20)
        bystander = subprocess.Popen(["sleep", "60"])
        self.addCleanup(bystander.wait)
        self.addCleanup(bystander.kill)
        one.folder.mkdir()
        (one.folder / "lock").touch()
        start = supervise.start_time(bystander.pid)
        (one.folder / "state.json").write_text(json.dumps(
            {"supervisor": {"pid": bystander.pid, "start": start - 1}}))
        one.stop()
        self.assertIsNone(bystander.poll())
        self.assertFalse(one.folder.exists())

    def failing(self, qemu, pattern, **options):
        """A lab that does not come up; returns it."""
        starter = lab.Starter(lab.up_options(1, lab="a"), artifacts(qemu))
        with contextlib.redirect_stderr(io.StringIO()), \
                self.assertRaisesRegex(UserError, pattern):
            starter.start(**options)
        self.assertFalse(starter.lab.folder.exists())
        self.assertFalse(starter.lab.logs.exists())
        return starter.lab

    def test_qemu_that_is_not_there(self):
        self.failing("/nonexistent/qemu", "/nonexistent/qemu")

    def test_qemu_that_refuses_an_option(self):
        one = self.failing("/bin/false",
                           "QEMU of guest1 ended .exit status 1")
        self.assertFalse(one.failed_logs.exists())

    def test_the_logs_of_a_lab_that_did_not_come_up(self):
        for _ in range(2):
            one = self.failing("/bin/false", "(?s)ended.*\nthe logs are in "
                               ".*a.failed$", keep_logs=True)
            self.assertTrue((one.failed_logs / "1-qemu.log").exists())
        self.vroce("down", "--lab", "a")
        self.assertFalse(one.failed_logs.exists())


if __name__ == "__main__":
    unittest.main()
