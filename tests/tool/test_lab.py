# SPDX-License-Identifier: GPL-2.0-or-later
"""The life of a lab's processes, with programs in the place of QEMU."""

import contextlib
import io
import json
import os
import subprocess
import sys
import threading
import time
import unittest
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[2] / "scripts"),
                str(Path(__file__).resolve().parent)]

from support import Folders, artifacts  # noqa: E402
from vroce_tool import lab, supervise  # noqa: E402
from vroce_tool.util import UserError  # noqa: E402


def gone(pid):
    """Whether a process runs no more; a zombie does not run."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return True
    return stat.rpartition(")")[2].split()[0] == "Z"


class Life(Folders):
    def start(self, name="a", argv=("sleep", "60")):
        """A supervised lab of two guests; returns it, its supervisor and the
        end of the pipe by which it knows that `up` lives."""
        starter = lab.Starter(lab.up_options(2, lab=name), artifacts())
        lock = starter._claim()
        reader, owner = os.pipe()
        spec = starter.spec()
        for process in spec["processes"]:
            process["argv"] = list(argv)
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

    def failing(self, qemu, pattern):
        starter = lab.Starter(lab.up_options(1, lab="a"), artifacts(qemu))
        with contextlib.redirect_stderr(io.StringIO()), \
                self.assertRaisesRegex(UserError, pattern):
            starter.start()
        self.assertFalse(starter.lab.folder.exists())
        self.assertFalse(starter.lab.logs.exists())

    def test_qemu_that_is_not_there(self):
        self.failing("/nonexistent/qemu", "/nonexistent/qemu")

    def test_qemu_that_refuses_an_option(self):
        self.failing("/bin/false", "QEMU of guest1 ended .exit status 1")


if __name__ == "__main__":
    unittest.main()
