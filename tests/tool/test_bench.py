# SPDX-License-Identifier: GPL-2.0-or-later
"""`vroce bench`: what it makes of figures; no figure is asserted."""

import contextlib
import io
import itertools
import json
import os
import shutil
import sys
import types
import unittest
from pathlib import Path
from unittest import mock

sys.path[:0] = [str(Path(__file__).resolve().parents[2] / "scripts"),
                str(Path(__file__).resolve().parent)]

from support import Folders  # noqa: E402
from vroce_tool import (benchengine, benchidle, benchlab,  # noqa: E402
                        benchnetdevs, benchplot, benchrdma, benchtable,
                        benchwakeups)
from vroce_tool.guest import CARD, RXE  # noqa: E402
from vroce_tool.util import UserError  # noqa: E402


def results():
    """What benchrdma.run() returns, of made-up figures."""
    rows = [benchrdma.summary(row, {CARD: [2.0, 3.0], RXE: [1.0, 1.5]})
            for row in benchrdma.ROWS]
    return {"memcpy_gib_s": 5.5, "rows": rows}


def printed(function, *arguments):
    with contextlib.redirect_stdout(io.StringIO()) as text:
        function(*arguments)
    return text.getvalue()


class Arguments(Folders):
    def test_mistakes_say_what_to_do(self):
        for text, *words in (
                ("there is no benchmark 'nonesuch'; there are rdma, engine",
                 "nonesuch"),
                ("there is no drawing of 'engine'", "engine", "--plot",
                 "x.svg"),
                ("must end in .svg or .png", "--plot", "x.jpeg"),
                ("there is no reference for 'idle'", "idle", "--compare")):
            with self.subTest(words=words):
                result = self.vroce("bench", *words)
                self.assertEqual(result.returncode, 1, result.stderr)
                self.assertIn(text, result.stderr)
                self.assertNotIn("Traceback", result.stderr)

    def test_the_list_names_all(self):
        text = self.vroce("bench", "--list").stdout
        for name in ("rdma", "engine", "wire", "wakeups", "idle", "netdevs"):
            self.assertIn(f"{name}: ", text)


class Results(unittest.TestCase):
    def test_more_is_better_in_every_ratio(self):
        bandwidth = benchrdma.Row("ib_write_bw", 65536, 1, "MiB/s")
        latency = benchrdma.Row("ib_write_lat", 8, 1, "us")
        figures = {CARD: [400.0, 500.0], RXE: [20.0, 25.0]}
        row = benchrdma.summary(bandwidth, figures)
        self.assertEqual((row["vroce"], row["rxe"], row["ratio"]),
                         (500.0, 25.0, 20.0))
        row = benchrdma.summary(bandwidth, {CARD: [2.0], RXE: []})
        self.assertEqual((row["vroce"], row["rxe"], row["ratio"]),
                         (2.0, None, None))
        row = benchrdma.summary(latency, {CARD: [150.0, 100.0],
                                          RXE: [900.0, 1000.0]})
        self.assertEqual((row["vroce"], row["rxe"], row["ratio"]),
                         (100.0, 900.0, 9.0))
        self.assertLess(benchrdma.summary(
            bandwidth, {CARD: [1.0], RXE: [2.0]})["ratio"], 1)

    def test_all_rows_that_are_promised(self):
        rows = {(row.test, row.size, row.qps) for row in benchrdma.ROWS}
        for op in ("write", "read", "send"):
            for size in (64, 4096, 65536, 1 << 20):
                for qps in (1, 16):
                    self.assertIn((f"ib_{op}_bw", size, qps), rows)
            for size in (8, 4096):
                self.assertIn((f"ib_{op}_lat", size, 1), rows)
        self.assertIn(("tcp", 65536, 1), rows)

    def test_counts_follow_what_was_seen(self):
        row = benchrdma.Row("ib_write_bw", 65536, 1, "MiB/s")
        self.assertEqual(benchrdma.next_count(row, 500.0, 2), 16000)
        self.assertEqual(benchrdma.next_count(row, 0.01, 2),
                         benchrdma.MIN_COUNT)
        row = benchrdma.Row("ib_write_lat", 8, 1, "us")
        self.assertEqual(benchrdma.next_count(row, 100.0, 2), 10000)

    def test_the_table_has_a_line_for_each_row(self):
        text = printed(benchrdma.show, results())
        self.assertIn("memcpy of the host: 5.5 GiB/s", text)
        for row in benchrdma.ROWS:
            self.assertRegex(
                text, rf"(?m)^{row.test} +{benchtable.size(row.size)} +"
                rf"{row.qps} +{row.unit} +[\d.]+ +[\d.]+ +[\d.]+$")

    def test_memcpy_is_measured(self):
        self.assertGreater(benchtable.memcpy_gib_s(8 << 20, 1), 0)


class Drawing(Folders):
    def test_every_row_is_drawn(self):
        text = benchplot.script(results(), "svg", "x.svg")
        for test in ("ib_write_bw", "ib_read_bw", "ib_send_bw", "latency"):
            self.assertIn(test, text)
        self.assertEqual(text.count("\nplot "), 4)
        self.assertNotIn("nan", text)

    @unittest.skipUnless(shutil.which("gnuplot"), "gnuplot is not installed")
    def test_gnuplot_takes_it(self):
        for kind, start in ((".svg", b"<?xml"), (".png", b"\x89PNG")):
            path = self.folder / f"x{kind}"
            benchplot.draw(results(), path)
            self.assertTrue(path.read_bytes().startswith(start))

    def test_a_missing_gnuplot_is_asked_for(self):
        with mock.patch.object(benchplot.shutil, "which", return_value=None), \
                mock.patch.object(benchplot.hostpkgs, "ensure") as ensure:
            benchplot.check(Path("x.svg"), True)
        ensure.assert_called_once_with(True, ["gnuplot-nox"])


CALLGRIND = """\
events: Ir
fl=(1) /x/qemu-device/engine/req.c
fn=(1) vr_req_run
10 5
+2 7
cfi=(2) /x/tests/unit/fakehost.c
cfn=(2) op_mem_map
calls=3 4
11 9000
fi=(3) /usr/include/bits/string_fortified.h
* 1
fe=(1)
12
fl=(2)
fn=(2)
20 400
fl=(4) ???
fn=(3) __memmove_avx_unaligned
0 30
fn=(4) strlen
0 1000
totals: 1443
"""


class Engine(Folders):
    def test_the_engines_own_instructions_are_told_apart(self):
        path = self.folder / "out"
        path.write_text(CALLGRIND)
        self.assertEqual(benchengine.read_callgrind(path), (13, 30))

    def test_lines_of_the_program(self):
        figures = benchengine.parse("wire WRITE 10 8 2000 0.5 4000\n")
        self.assertEqual(figures, {("wire", "WRITE", 10, 8): (2000, 0.5,
                                                              4000)})

    def rows(self, instructions):
        return {"rows": [
            {"link": "wire", "op": "WRITE", "qps": qps, "size": 8,
             "instructions": count, "data_instructions": 10.0}
            for qps, count in instructions.items()]}

    def test_growth_is_that_of_the_worst(self):
        data = self.rows({1: 100.0, 10: 130.0, 100: 110.0})
        self.assertEqual(benchengine.growth(data["rows"], "instructions"),
                         {("wire", "WRITE", 8): 1.3})

    def compare(self, before, now, tolerance=3.0):
        path = self.folder / "reference.json"
        path.write_text(json.dumps({"engine": self.rows(before)}))
        with mock.patch.object(benchengine, "REFERENCE", path), \
                contextlib.redirect_stderr(io.StringIO()) as said:
            status = benchengine.Engine.compare(self.rows(now), tolerance)
        return status, said.getvalue()

    def test_what_got_worse_fails(self):
        status, said = self.compare({1: 100.0}, {1: 110.0})
        self.assertEqual(status, 1)
        self.assertIn("110 instead of 100 (+10.0 %)", said)

    def test_what_got_better_is_said(self):
        status, said = self.compare({1: 100.0}, {1: 80.0})
        self.assertEqual(status, 0)
        self.assertIn("(-20.0 %)", said)

    def test_the_tolerance_counts(self):
        self.assertEqual(self.compare({1: 100.0}, {1: 110.0}, 20.0)[0], 0)

    def test_a_missing_reference_says_how_to_make_it(self):
        with mock.patch.object(benchengine, "REFERENCE",
                               self.folder / "none"):
            with self.assertRaisesRegex(UserError, "bench engine --save"):
                benchengine.reference("engine")

    def test_the_reference_covers_what_is_measured(self):
        rows = {tuple(row[field] for field in benchengine.Key._fields)
                for row in benchengine.reference("engine")["rows"]}
        self.assertEqual(rows, {
            (link, op, qps, size) for link in benchengine.LINKS
            for op in benchengine.OPS for qps in benchengine.QPS
            for size in benchengine.SIZES})
        self.assertTrue(benchengine.reference("engine")["machine"]["cpu"])


class Netdevs(unittest.TestCase):
    def test_what_fails_has_no_figure_and_ends_nothing(self):
        def measure(bench, *_test):
            if bench.kind == "vde" or next(bench.serial) == 1:
                raise AssertionError("retry exceeded")
            return 7.0

        benches = {kind: types.SimpleNamespace(kind=kind,
                                               serial=itertools.count())
                   for kind in benchnetdevs.KINDS}
        with mock.patch.object(benchnetdevs, "measure", measure), \
                mock.patch.object(benchlab, "thawed"), \
                contextlib.redirect_stderr(io.StringIO()) as said:
            row = benchnetdevs.measure_test(benchnetdevs.TESTS[0], benches, 3,
                                            False)
        self.assertEqual([row[kind] for kind in benchnetdevs.KINDS],
                         [7.0, 7.0, None])
        self.assertEqual(row["runs"]["dgram"], [7.0, 7.0])
        self.assertIn("64 KiB: vde fails: retry exceeded", said.getvalue())
        self.assertEqual(benchnetdevs.failures({"rows": [row]}),
                         ["ib_write_bw over vde"])


class Processes(unittest.TestCase):
    """What is read from /proc, of this process."""

    def test_cpu_time_grows(self):
        before = benchidle.cpu_seconds(os.getpid())
        while benchidle.cpu_seconds(os.getpid()) < before + 0.05:
            pass

    def test_switches_are_told_by_thread(self):
        guest = mock.MagicMock(number=1)
        guest.name = "guest1"
        guest.qmp().__enter__().execute.return_value = []
        lab = mock.MagicMock(guests=[guest],
                             state={"guest1": {"pid": os.getpid()}})
        counts = benchwakeups.switches(lab)[1]
        self.assertGreaterEqual(counts["main loop"], 0)
        self.assertEqual(counts["vCPUs"], 0)


if __name__ == "__main__":
    unittest.main()
