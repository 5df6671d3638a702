# SPDX-License-Identifier: GPL-2.0-or-later
"""What `vroce reload` says of a driver that is in use."""

import subprocess
import sys
import unittest
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
sys.path[:0] = [str(SCRIPTS), str(Path(__file__).resolve().parent)]

from support import Programs  # noqa: E402
from vroce_tool import guest, reload  # noqa: E402
from vroce_tool.util import UserError  # noqa: E402

IN_GUEST = SCRIPTS / "vroce_tool/in_guest"
MAPS = """
import mmap, sys, time
with open(sys.argv[1], "r+b") as file:
    memory = mmap.mmap(file.fileno(), 4096)
print("on", flush=True)
time.sleep(60)
"""


class Users(Programs):
    def setUp(self):
        super().setUp()
        self.file = self.folder / "uverbs0"
        self.file.write_bytes(bytes(4096))

    def hold(self, *words, **options):
        """A program, started; returns its pid."""
        child = subprocess.Popen(words, stdout=subprocess.PIPE, **options)
        self.addCleanup(child.wait)
        self.addCleanup(child.stdout.close)
        self.addCleanup(child.kill)
        child.stdout.readline()
        return child.pid

    def says(self):
        return subprocess.run(
            [IN_GUEST / "card-users", self.folder / "uverbs"], text=True,
            stdout=subprocess.PIPE, check=True).stdout

    def test_users(self):
        self.assertEqual(self.says(), "")
        with open(self.file, "rb") as file:
            one = self.hold("sh", "-c", "echo on; exec sleep 60", stdin=file)
        self.assertRegex(self.says(), rf"^\w+ \(pid {one}\) has the card open; "
                         "end it and reload again\n$")
        other = self.hold(sys.executable, "-c", MAPS, self.file)
        first, second = sorted((one, other))
        self.assertRegex(
            self.says(), rf"^\S+ \(pid {first}\), \S+ \(pid {second}\) have "
            "the card open; end them and reload again\n$")


class Reload(Programs):
    def test_what_it_says(self):
        self.program("vroce-unload", "echo 'rmmod: no' >&2; exit 1")
        self.program("ssh", f"exec {IN_GUEST}/reload m 1.2.3.4")
        one = guest.Guest(1, guest.CARD, self.folder, self.folder, 1,
                          self.folder)
        with self.assertRaisesRegex(UserError, "^guest 1: rmmod: no$"):
            reload.reload_guest(one)


if __name__ == "__main__":
    unittest.main()
