# SPDX-License-Identifier: GPL-2.0-or-later
"""Reading what programs and captures say."""

import struct
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))

from vroce_tool import capture, demo, programs  # noqa: E402

BANDWIDTH = """
---------------------------------------------------------------------------
 #bytes     #iterations    BW peak[MiB/sec]    BW average[MiB/sec]   MsgRate[Mpps]
 65536      1000             213.55             201.25   \t\t     0.003220
---------------------------------------------------------------------------
"""
LATENCY = """
 #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec]
 8       300          64.97          363.61      80.16  \t       70.57     \t72.24\t\t344.60 \t\t363.61
"""


class Perftest(unittest.TestCase):
    def test_bandwidth(self):
        row = programs.perftest_row(BANDWIDTH)
        self.assertEqual(row["BW_average[MiB/sec]"], 201.25)
        self.assertEqual(row["#bytes"], 65536)

    def test_latency(self):
        row = programs.perftest_row(LATENCY)
        self.assertEqual(row["t_typical[usec]"], 80.16)
        self.assertEqual(row["99%[usec]"], 344.6)
        self.assertEqual(row["99.9%[usec]"], 363.61)

    def test_no_figures(self):
        for text in ("", "Couldn't create CQ\n", BANDWIDTH.split("65536")[0]):
            with self.subTest(text=text), self.assertRaises(AssertionError):
                programs.perftest_row(text)


class Pcap(unittest.TestCase):
    HEADER = struct.pack("=IHHiIII", 0xa1b2c3d4, 2, 4, 0, 0, 65536, 1)

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="vroce-test-")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def write(self, name, *sizes):
        path = self.folder / name
        path.write_bytes(self.HEADER + b"".join(
            struct.pack("=IIII", 1, 0, size, size) + bytes(size)
            for size in sizes))
        return path

    def test_join(self):
        parts = [self.write("a", 60, 4154), self.write("b"),
                 self.write("c", 62)]
        self.assertEqual([capture.count_frames(part) for part in parts],
                         [2, 0, 1])
        whole = self.folder / "whole"
        capture.join(parts, whole)
        self.assertEqual(capture.count_frames(whole), 3)
        self.assertEqual(whole.read_bytes(),
                         self.write("d", 60, 4154, 62).read_bytes())


class FirstFrames(unittest.TestCase):
    @staticmethod
    def frames(*opcodes):
        return [{"frame.number": str(number),
                 "infiniband.bth.opcode": str(opcode)}
                for number, opcode in enumerate(opcodes, 1)]

    def numbers(self, start, opcodes, *frames):
        return [int(frame["frame.number"]) for frame in
                demo.first_frames(self.frames(*frames), start, opcodes)]

    def test_starts_at_the_operation_and_ends_with_its_acknowledge(self):
        self.assertEqual(
            self.numbers(2, {6}, 6, 17, 100, 6, 7, 7, 7, 7, 8, 17, 17),
            [4, 5, 6, 7, 10])

    def test_an_acknowledge_among_them_is_enough(self):
        self.assertEqual(self.numbers(0, {4}, 4, 17, 4, 17, 4, 17),
                         [1, 2, 3, 4])

    def test_datagrams_have_none(self):
        self.assertEqual(self.numbers(0, {100}, 100, 100, 17), [1, 2, 3])
        self.assertEqual(self.numbers(0, {100}, 100, 1, 1, 1, 1, 17),
                         [1, 2, 3, 4])

    def test_nothing(self):
        self.assertEqual(self.numbers(0, {12}, 4, 17), [])


if __name__ == "__main__":
    unittest.main()
