# SPDX-License-Identifier: GPL-2.0-or-later
"""The command `vroce pcap`, with a monitor that only says yes."""

import contextlib
import io
import shutil
import signal
import subprocess
import sys
import types
import unittest
from pathlib import Path
from unittest import mock

sys.path[:0] = [str(Path(__file__).resolve().parents[2] / "scripts"),
                str(Path(__file__).resolve().parent)]

from support import Folders  # noqa: E402
from vroce_tool import capture, util  # noqa: E402
from vroce_tool.util import Interrupted, UserError  # noqa: E402


class Filter(unittest.TestCase):
    def setUp(self):
        self.assertTrue(shutil.which("tshark"), "install tshark")

    def test_good(self):
        capture.check_filter("infiniband.bth.opcode == 4")

    def test_bad_is_named_with_tsharks_reason(self):
        for text, why in (("infiniband.bth.opcde == 4", "field"),
                          ("udp ==", "end of filter")):
            with self.subTest(text=text), self.assertRaisesRegex(
                    UserError, f"'{text}' is no display filter .*{why}"):
                capture.check_filter(text)


class Lab(Folders):
    """A lab whose wire is idle and whose user interrupts soon."""

    def setUp(self):
        super().setUp()
        self.polls = 0
        self.path = self.folder / "wire.pcap"
        guest = mock.MagicMock()
        # QEMU writes the header as soon as it opens the file.
        guest.qmp().__enter__().execute.side_effect = self.execute
        self.lab = types.SimpleNamespace(guest=lambda number: guest,
                                         running=self.running)

    def execute(self, command, **arguments):
        if command == "object-add":
            Path(arguments["file"]).write_bytes(capture.EMPTY_PCAP)

    def running(self):
        self.polls += 1
        if self.polls == 5:
            raise Interrupted()
        return True

    def test_writing_tells_the_size(self):
        with contextlib.redirect_stderr(io.StringIO()) as errors, \
                self.assertRaises(Interrupted):
            capture._write(self.lab, self.path, None)
        self.assertIn(f"{self.path}: 24 bytes", errors.getvalue())

    def test_showing_ends_at_once(self):
        statuses = []

        def finish(child):
            util.finish(child, grace=60)
            statuses.append(child.returncode)

        with mock.patch.object(capture, "finish", finish), \
                self.assertRaises(Interrupted):
            capture._show(self.lab, [], None)
        self.assertTrue(statuses)
        self.assertNotIn(-signal.SIGKILL, statuses)


class Finish(unittest.TestCase):
    def test_a_reader_of_input_ends_at_once(self):
        child = util.start(["sh", "-c", "trap '' TERM; echo on; read -r x"],
                           stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.assertEqual(child.stdout.readline(), b"on\n")
        util.finish(child, grace=60)
        self.assertEqual(child.returncode, 1)   # by itself, at the input's end


if __name__ == "__main__":
    unittest.main()
