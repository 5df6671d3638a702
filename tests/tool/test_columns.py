# SPDX-License-Identifier: GPL-2.0-or-later
"""No line of C is longer than those who would merge it allow."""

import re
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from support import Folders  # noqa: E402

REPO = Path(__file__).resolve().parents[2]

# QEMU's checkpatch warns behind 80, the kernel's behind 100; vroce_hw.h is
# also the driver's.
QEMU = 80
KERNEL = 100
LIMITS = {"qemu-device": QEMU, "qemu-device/vroce_hw.h": KERNEL,
          "guest-driver": KERNEL, "guest-userlib": KERNEL,
          "tests": QEMU, "tests/e2e": KERNEL, "tests/guest": KERNEL,
          "tests/hostile": KERNEL}


def rule_of(name):
    """Key in LIMITS: the nearest folder above, or the file itself."""
    return max((folder for folder in LIMITS
                if Path(name).is_relative_to(folder)), key=len)


def long_lines(path, limit):
    """(number, columns) of each; as checkpatch counts, … has three."""
    for number, line in enumerate(path.read_text().splitlines(), 1):
        columns = len(line.expandtabs(8).encode())
        # A message that is searched for is not cut in the kernel.
        message = limit == KERNEL and re.fullmatch(r'\s*".*"[,;)]*', line)
        if columns > limit and not message:
            yield number, columns


class Columns(Folders):
    def test_the_checkout(self):
        seen, wrong = set(), []
        for top in ("qemu-device", "guest-driver", "guest-userlib", "tests"):
            for path in sorted((REPO / top).rglob("*.[ch]")):
                if path.name.endswith(".mod.c"):    # kbuild's
                    continue
                name = path.relative_to(REPO).as_posix()
                rule = rule_of(name)
                seen.add(rule)
                wrong += [f"{name}:{number}: {columns} columns of at most "
                          f"{LIMITS[rule]}" for number, columns
                          in long_lines(path, LIMITS[rule])]
        self.assertEqual(seen, set(LIMITS), "no file of one of them was seen")
        if wrong:
            self.fail("\n".join(wrong))

    def test_what_counts(self):
        path = self.folder / "x.c"
        message = '\t"' + 120 * "x" + '",\n'
        path.write_text(80 * "x" + "\n" + 81 * "x" + "\n\t" + 73 * "x" + "\n" +
                        78 * "x" + "…\n" + message + 101 * "x" + "\n")
        self.assertEqual(list(long_lines(path, QEMU)),
                         [(2, 81), (3, 81), (4, 81), (5, 131), (6, 101)])
        self.assertEqual(list(long_lines(path, KERNEL)), [(6, 101)])


if __name__ == "__main__":
    unittest.main()
