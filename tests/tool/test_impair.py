# SPDX-License-Identifier: GPL-2.0-or-later
"""The relay in the wire: what it is told, and how it is run."""

import contextlib
import io
import os
import sys
import time
import unittest
from pathlib import Path
from unittest import mock

sys.path[:0] = [str(Path(__file__).resolve().parents[2] / "scripts"),
                str(Path(__file__).resolve().parent)]

from support import Folders, artifacts  # noqa: E402
from vroce_tool import impair, impairtable, lab, relay, wire  # noqa: E402
from vroce_tool.util import UserError  # noqa: E402


class Specs(unittest.TestCase):
    def test_values(self):
        spec = relay.parse("loss=1%,dup=0.5%,reorder=2%,gap=4,corrupt=0.1%,"
                           "delay=1.5ms,jitter=20us,seed=9")
        self.assertEqual(spec, relay.Spec(
            loss=10**7, dup=5 * 10**6, reorder=2 * 10**7, gap=4,
            corrupt=10**6, delay=1500000, jitter=20000, seed=9))
        self.assertEqual(relay.parse("off"), relay.OFF)
        self.assertEqual(relay.parse("loss=100%").loss, 10**9)

    def test_text_and_back(self):
        for text in ("off", "loss=1%,seed=1", "loss=0.0000001%,seed=0",
                     "reorder=2%,delay=1500us,gap=9,seed=7"):
            self.assertEqual(str(relay.parse(text)), text)

    def test_errors(self):
        for text, pattern in (
                ("", "'' is no impairment; there are loss, dup"),
                ("lose=1%", "'lose=1%' is no impairment"),
                ("loss=1%,off", "'off' is no impairment"),
                ("loss=1%,", "'' is no impairment"),
                ("loss", "'loss' has no value; write loss=1%"),
                ("loss=1", "loss=1: not a percentage; write loss=1%"),
                ("loss=-1%", "not a percentage"),
                ("loss=101%", "more than 100%"),
                ("loss=0.00000001%", "finer than a billionth"),
                ("loss=1%,loss=1%", "'loss' is there twice"),
                ("delay=1", "not a time in ns, us, ms or s"),
                ("delay=1h", "not a time"),
                ("delay=11s", "more than 10s"),
                ("jitter=-1ms", "not a time"),
                ("gap=4", "it needs reorder="),
                ("reorder=1%,gap=0", "not a number from 1 to 1000"),
                ("seed=x", "not a number from 0"),
                ("seed=18446744073709551616", "not a number from 0")):
            with self.assertRaises(UserError, msg=text) as caught:
                relay.parse(text)
            self.assertIn(pattern, str(caught.exception))


class CommandLine(Folders):
    def refused(self, pattern, *words, status=2):
        result = self.vroce(*words)
        self.assertEqual(result.returncode, status, result)
        self.assertRegex(result.stderr, pattern)

    def test_bad_words(self):
        self.refused("'lose=1%' is no impairment", "up", "2", "--impair",
                     "lose=1%", "--dry-run")
        self.refused("more than 100%", "impair", "loss=200%")
        self.refused("write 2s or 300ms", "impair", "--blackout", "2")
        self.refused("more than 3600s", "impair", "--blackout", "3601s")
        self.refused("invalid choice: 3", "impair", "--from", "3", "off")
        self.refused("no lab 'x' is running", "impair", "--lab", "x",
                     status=1)

    def test_number_of_guests(self):
        for count in ("1", "3"):
            self.refused(f"joins two guests, not {count}", "up", count,
                         "--impair", "off", "--dry-run", status=1)

    def test_dry_run(self):
        result = self.vroce("up", "2", "--impair", "loss=1%", "--dry-run")
        self.assertEqual(result.returncode, 0, result.stderr)
        line, = (line for line in result.stdout.splitlines()
                 if "tests/impair/relay " in line)
        self.assertIn("relay.sock 'set both loss=10000000 ", line)
        self.assertNotIn("relay", self.vroce("up", "2", "--dry-run").stdout)


class Wires(Folders):
    def test_who_inherits_what(self):
        plan = wire.plan(2, relay=True)
        self.assertEqual(len(plan.pairs), 2)
        for (near, far), fds, netdev, middle in zip(
                plan.pairs, plan.fds, plan.netdevs, plan.relay_fds):
            self.assertEqual(fds, [near])
            self.assertIn(f"local.str={near}", netdev)
            self.assertEqual(middle, far)

    def test_processes(self):
        starter = lab.Starter(lab.up_options(
            2, lab="a", impair=relay.parse("dup=1%")), artifacts())
        spec = starter.spec()
        first = spec["processes"][0]
        self.assertEqual(first["name"], "relay")
        self.assertEqual(first["fds"], starter.wire.relay_fds)
        self.assertEqual(first["argv"][-1], relay.parse("dup=1%").request())
        self.assertEqual(spec["relay"], first["argv"][-2])

    def test_a_lab_without_relay(self):
        starter = lab.Starter(lab.up_options(2, lab="a"), artifacts())
        starter.lab.spec = starter.spec()
        with self.assertRaisesRegex(UserError, "up 2 --lab a --impair off"):
            impair.Wire(starter.lab)

    def test_no_relay_answers(self):
        with self.assertRaisesRegex(UserError, "does not answer"):
            relay.ask(self.folder / "relay.sock", "status")


class Table(unittest.TestCase):
    def test_ratios(self):
        lossless, one, five = impairtable.SPECS
        card = {lossless: 200.0, one: 180.0, five: 80.0}
        rxe = {lossless: 0.0, one: 0.0, five: 0.0}
        table = impairtable.rows(card, rxe)
        self.assertEqual([row["vroce_ratio"] for row in table],
                         [1.0, 0.9, 0.4])
        self.assertEqual([row["rxe_ratio"] for row in table], [0.0] * 3)
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            impairtable.show(table)
        self.assertIn(f"{one}".ljust(38) + "    180.0   0.90",
                      out.getvalue())


class Running(Folders):
    """A real relay, whose program is in the cache that people use."""

    @classmethod
    def setUpClass(cls):
        with contextlib.redirect_stderr(io.StringIO()):
            relay.build()
        cls.binary = relay.binary()

    def setUp(self):
        super().setUp()
        patch = mock.patch.object(relay, "binary", lambda: self.binary)
        patch.start()
        self.addCleanup(patch.stop)
        # Two sleeping processes in the place of QEMU.
        starter = lab.Starter(lab.up_options(2, lab="a", impair=relay.OFF),
                              artifacts())
        lock = starter._claim()
        reader, self.owner = os.pipe()
        starter.lab.spec = starter.spec()
        for process in starter.lab.spec["processes"][1:]:
            process["argv"] = ["sleep", "60"]
        starter.lab.save()
        self.lab = starter.lab
        self.supervisor = starter._spawn(reader, lock)
        os.close(reader)
        os.close(lock)
        self.addCleanup(self.end)
        while not (self.lab.state and
                   (self.lab.folder / "relay.sock").exists()):
            self.assertIsNone(self.supervisor.poll(), "the lab ended")
            time.sleep(0.01)

    def end(self):
        os.close(self.owner)
        self.supervisor.wait(20)
        self.lab.remove()

    def test_change(self):
        one = impair.Wire(self.lab)
        self.assertEqual([d["spec"] for d in one.directions()], ["off"] * 2)
        one.impair(relay.parse("loss=5%,seed=3"), sender=2)
        self.assertEqual([d["spec"] for d in one.directions()],
                         ["off", "loss=5%,seed=3"])
        one.blackout(100, sender=1)
        first, second = one.directions()
        self.assertGreater(first["blackout_seconds"], 90)
        self.assertEqual(second["blackout_seconds"], 0)
        one.settle()
        self.assertFalse(any(one.counters().values()))

    def test_command(self):
        result = self.vroce("impair", "loss=1%,seed=4", "--lab", "a")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("guest 2 to guest 1: loss=1%,seed=4", result.stdout)
        self.assertRegex(result.stdout, r"received +0 +0\n")
        result = self.vroce("impair", "--blackout", "90s", "--lab", "a")
        self.assertIn("no frame for", result.stdout)
        result = self.vroce("impair", "--json", "--lab", "a")
        self.assertIn('"spec": "loss=1%,seed=4"', result.stdout)

    def test_a_relay_that_ended_is_reported(self):
        os.kill(self.lab.state["relay"]["pid"], 9)
        # What is asked while it dies has no answer for ten seconds.
        while "exit" not in self.lab.state["relay"]:
            time.sleep(0.01)
        with self.assertRaisesRegex(UserError, "relay does not answer"):
            impair.Wire(self.lab).directions()


if __name__ == "__main__":
    unittest.main()
