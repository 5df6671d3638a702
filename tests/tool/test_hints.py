# SPDX-License-Identifier: GPL-2.0-or-later
"""What is suggested names the lab that was meant."""

import contextlib
import fcntl
import sys
import unittest
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[2] / "scripts"),
                str(Path(__file__).resolve().parent)]

from support import Folders  # noqa: E402
from vroce_tool.lab import Lab  # noqa: E402


class Labs(Folders):
    @contextlib.contextmanager
    def lab(self, name, running=True, guests=2):
        """A lab of that name, without guests that run."""
        lab = Lab(name)
        lab.folder.mkdir(mode=0o700)
        lab.logs.mkdir(parents=True)
        (lab.logs / "1-qemu.log").write_text("one\ntwo\n")
        lab.spec = {"modes": ["card"] * guests, "ssh_ports": [1] * guests}
        lab.save()
        with open(lab.folder / "lock", "w") as file:
            if running:
                fcntl.flock(file, fcntl.LOCK_EX)
            yield lab
        lab.remove()

    def refused(self, text, *words, status=1):
        result = self.vroce(*words)
        self.assertEqual(result.returncode, status, result.stderr)
        self.assertIn(text, " ".join(result.stderr.split()))


class Hints(Labs):
    def test_no_such_lab(self):
        self.refused("start it with 'vroce up 2'", "ssh", "1")
        with self.lab("a"), self.lab("b"), self.lab("c", running=False):
            self.refused("no lab 'x' is running (running: --lab a, --lab b); "
                         "start it with 'vroce up 2 --lab x'",
                         "ssh", "--lab", "x", "1")

    def test_ended(self):
        with self.lab("a", running=False):
            self.refused("see 'vroce logs --lab a', clear it away with 'vroce "
                         "down --lab a'", "ssh", "--lab", "a", "1")
        with self.lab("default", running=False):
            self.refused("'vroce down'", "ssh", "1")

    def test_too_few_guests(self):
        with self.lab("a", guests=1):
            self.refused("'vroce up 2 --lab a'", "pair", "--lab", "a", "--a",
                         "x", "--b", "y")

    def test_no_relay(self):
        with self.lab("a"):
            self.refused("'vroce up 2 --lab a --impair off'", "impair",
                         "--lab", "a", "loss=1%")

    def test_a_relay_for_three(self):
        self.refused("use 'vroce up 2 --lab a'", "up", "--lab", "a", "3",
                     "--impair", "off")
        self.refused("use 'vroce up 2'", "up", "3", "--impair", "off")

    def test_stands_still(self):
        with self.lab("a") as lab:
            (lab.folder / "state.json").write_text(
                '{"supervisor": {"stopped": true}}')
            self.assertIn("lab a: stands still ('vroce cont --lab a' goes on)",
                          self.vroce("status").stdout)
            for command, *rest in (["ssh", "1"], ["ssh", "1", "--", "true"],
                                   ["dmesg", "1"], ["reload"],
                                   ["pair", "--a", "x", "--b", "y"]):
                with self.subTest(command=command):
                    self.refused("lab 'a' stands still: 'vroce cont --lab a' "
                                 "goes on", command, "--lab", "a", *rest)

    def test_status_of_one(self):
        with self.lab("a"), self.lab("b"):
            text = self.vroce("status", "--lab", "b").stdout
            self.assertTrue(text.startswith("lab b: "), text)
            self.assertNotIn("lab a", text)
            self.refused("no lab 'x' is running", "status", "--lab", "x")

    def test_already_running(self):
        with self.lab("a"):
            self.refused("'vroce down --lab a'", "up", "--lab", "a", "2")
            self.refused("'vroce down --lab a'", "demo", "--lab", "a")


class Logs(Labs):
    def test_lines(self):
        for text in ("abc", "-1", "99999999999999999999"):
            with self.subTest(text=text):
                self.refused(f"'{text}' is not a number of lines from 0 to",
                             "logs", f"-n{text}", status=2)
        with self.lab("default"):
            self.assertIn("two", self.vroce("logs", "-n", "1").stdout)

    def test_guest(self):
        with self.lab("default"):
            for number in ("0", "3"):
                with self.subTest(number=number):
                    self.refused(f"has no guest {number}: it has guests 1 to "
                                 "2", "logs", number)


if __name__ == "__main__":
    unittest.main()
