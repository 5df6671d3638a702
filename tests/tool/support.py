# SPDX-License-Identifier: GPL-2.0-or-later
"""What the tests of scripts/vroce share."""

import os
import subprocess
import tempfile
import types
import unittest
from pathlib import Path
from unittest import mock

VROCE = str(Path(__file__).resolve().parents[2] / "scripts" / "vroce")


class Folders(unittest.TestCase):
    """Tests that have a runtime folder and a cache of their own."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="vroce-test-")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        (self.folder / "run").mkdir(mode=0o700)
        self.env = {"XDG_RUNTIME_DIR": str(self.folder / "run"),
                    "VROCE_CACHE": str(self.folder / "cache")}
        patch = mock.patch.dict(os.environ, self.env)
        patch.start()
        self.addCleanup(patch.stop)

    def vroce(self, *words):
        return subprocess.run([VROCE, *words], text=True, capture_output=True,
                              env={**os.environ, **self.env}, timeout=60,
                              check=False)


class Programs(Folders):
    """Tests that put programs of their own before the real ones."""

    def setUp(self):
        super().setUp()
        self.bin = self.folder / "bin"
        self.bin.mkdir()
        patch = mock.patch.dict(os.environ, {
            "PATH": f"{self.bin}:{os.environ['PATH']}"})
        patch.start()
        self.addCleanup(patch.stop)

    def program(self, name, script):
        path = self.bin / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)


def artifacts(qemu="/nonexistent/qemu"):
    """What a set-up would have made."""
    return types.SimpleNamespace(
        qemu=Path(qemu), firmware_dirs=[Path("/firmware")],
        kernel=Path("/k"), initrd=Path("/i"), image=Path("/img"),
        ssh=Path("/ssh"), artifacts=Path("/a,b"))
