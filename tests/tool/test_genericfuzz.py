# SPDX-License-Identifier: GPL-2.0-or-later
"""What is made of what QEMU's generic fuzzer prints and leaves."""

import sys
import unittest
from pathlib import Path
from unittest import mock

from support import Folders

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))

from vroce_tool import genericfuzz  # noqa: E402


class GenericFuzz(Folders):
    def fuzz(self, script):
        """run() with a shell script for the fuzzer; $prefix is of findings."""
        program = self.folder / "fuzzer"
        program.write_text("#!/bin/sh\n"
                           "for word; do case $word in -artifact_prefix=*) "
                           "prefix=${word#*=};; esac; done\n" + script)
        program.chmod(0o755)
        with mock.patch.object(genericfuzz, "build", lambda: program):
            return genericfuzz.run(1)

    def test_nothing_found(self):
        self.assertEqual(self.fuzz("echo stat::number_of_executed_units: 42"),
                         (42, ""))

    def test_finding(self):
        count, text = self.fuzz("echo '#7\tNEW cov: 1'; echo '#99\tNEW cov: 2';"
                                "echo 'ERROR: AddressSanitizer: heap-use-"
                                "after-free'; echo input > ${prefix}crash-1; "
                                "exit 77")
        self.assertEqual(count, 99)
        self.assertIn("heap-use-after-free", text)
        kept = self.folder / "cache" / "generic-fuzz" / "finding-crash-1"
        self.assertIn(str(kept), text)
        self.assertEqual(kept.read_text(), "input\n")

    def test_undefined_behaviour(self):
        """The card's counts, other devices' does not."""
        said = ("echo '../src/hw/%s.c:7:3: runtime error: shift of -1'; "
                "echo stat::number_of_executed_units: 5")
        self.assertEqual(self.fuzz(said % "ide/core"), (5, ""))
        count, text = self.fuzz(said % "net/vroce/engine/qp")
        self.assertEqual(count, 5)
        self.assertIn("hw/net/vroce/engine/qp.c:7:3", text)

    def test_did_not_start(self):
        count, text = self.fuzz("echo no such machine; exit 1")
        self.assertEqual(count, 0)
        self.assertIn("no such machine", text)

    def test_seeds(self):
        """Each seed goes on where the one before it ended."""
        seeds = list(genericfuzz._seeds())
        self.assertGreater(len(seeds), 10)
        self.assertTrue(seeds[1].startswith(seeds[0] + b"FUZZ"))
        self.assertNotIn(b"FUZZFUZZ", b"".join(seeds))


if __name__ == "__main__":
    unittest.main()
