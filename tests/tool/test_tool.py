# SPDX-License-Identifier: GPL-2.0-or-later
"""The logic of scripts/vroce that needs neither a lab nor its processes."""

import contextlib
import io
import json
import socket
import sys
import tempfile
import threading
import time
import types
import unittest
from pathlib import Path
from unittest import mock

sys.path[:0] = [str(Path(__file__).resolve().parents[2] / "scripts"),
                str(Path(__file__).resolve().parent)]

from support import Folders, artifacts  # noqa: E402
from vroce_tool import (guest, ktap, lab, oops, qmp,  # noqa: E402
                        suites, testrun, util, wire)
from vroce_tool.util import UserError  # noqa: E402


class Arguments(Folders):
    def refused(self, status, text, *words):
        result = self.vroce(*words)
        self.assertEqual(result.returncode, status, result.stderr)
        # argparse folds long lines.
        self.assertIn(text, " ".join(result.stderr.split()))
        self.assertNotIn("Traceback", result.stderr)

    def test_usage_errors_have_status_2(self):
        for text, *words in (
                ("'0' is not a number of guests from 1 to 32", "up", "0"),
                ("'two' is not a number of guests", "up", "two"),
                ("is no name for a lab", "up", "2", "--lab", "../x"),
                ("is no name for a lab", "up", "2", "--lab", "x" * 40),
                ("outside 384M to 1024G", "up", "2", "--memory", "1M"),
                ("is no amount of memory", "up", "2", "--memory", "much"),
                ("number of processors from 1 to 64", "up", "2", "--cpus",
                 "0"),
                ("is not two guests as in 1,2", "pair", "--a", "x", "--b",
                 "y", "--guests", "1"),
                ("invalid choice", "frobnicate")):
            with self.subTest(words=words):
                self.refused(2, text, *words)

    def test_usage_errors_are_of_the_command(self):
        for words, text in (
                (["status", "--foo"], "vroce status: unrecognized arguments: "
                 "--foo usage: vroce status [-h] [--lab NAME] [--json]"),
                (["pcap", "--lab"], "vroce pcap: argument --lab: expected one "
                 "argument usage: vroce pcap ")):
            with self.subTest(words=words):
                self.refused(2, text, *words)

    def test_mistakes_have_status_1(self):
        for text, *words in (
                ("1 guest of 1022976 MiB each do not fit into this machine's",
                 "up", "1", "--memory", "999G"),
                ("there is no guest 3 among 2", "up", "2", "--rxe", "3"),
                ("write PROPERTY=VALUE", "up", "2", "--card", "num-qps"),
                ("there is no suite 'nonesuch'", "test", "nonesuch"),
                ("--lab comes after the guest's number", "ssh", "1", "--lab",
                 "x", "--", "true"),
                ("-oX comes after the guest's number", "ssh", "1", "-oX")):
            with self.subTest(words=words):
                self.refused(1, text, *words)

    def test_commands_that_need_a_lab_say_how_to_start_one(self):
        for words in (["ssh", "1"], ["ssh", "1", "--", "-oX"],
                      ["console", "1"], ["dmesg", "1"],
                      ["logs"], ["pcap"], ["monitor", "1"], ["reload"],
                      ["pair", "--a", "x", "--b", "y"]):
            with self.subTest(words=words):
                self.refused(1, "start it with 'vroce up 2'", *words)

    def test_every_command_has_help(self):
        result = self.vroce("--help")
        self.assertEqual(result.returncode, 0)
        for command in ("setup", "up", "ssh", "pair", "reload", "console",
                        "dmesg", "logs", "pcap", "monitor", "status", "down",
                        "test", "demo"):
            with self.subTest(command=command):
                self.assertIn(f"\n    {command} ", result.stdout)
                self.assertEqual(self.vroce(command, "--help").returncode, 0)

    def test_nothing_runs(self):
        self.assertEqual(self.vroce("status").stdout, "no lab is running\n")
        data = json.loads(self.vroce("status", "--json").stdout)
        self.assertEqual(data, {"labs": []})
        self.assertEqual(self.vroce("down").returncode, 0)

    def test_a_foreign_runtime_folder_is_refused(self):
        (self.folder / "run" / "vroce").symlink_to(self.folder)
        self.refused(1, "is not a folder of yours", "status")


class Commands(Folders):
    """The QEMU commands."""

    def spec(self, count, **changes):
        options = lab.up_options(count, **changes)
        return lab.Starter(options, artifacts()).spec()

    def test_two_guests_share_a_socketpair(self):
        spec = self.spec(2)
        (near, far), = spec["pairs"]
        one, two = spec["processes"]
        self.assertEqual((one["fds"], two["fds"]), ([near], [far]))
        self.assertIn(f"dgram,id=wire,local.type=fd,local.str={near}",
                      one["argv"])
        self.assertIn("vroce,id=card,bus=slot1,netdev=wire,"
                      "mac=52:54:00:77:00:01", one["argv"])

    def test_more_guests_meet_at_a_hub(self):
        spec = self.spec(3)
        self.assertEqual([p["name"] for p in spec["processes"]],
                         ["hub", "guest1", "guest2", "guest3"])
        self.assertEqual(len(spec["processes"][0]["fds"]), 3)

    def test_an_rxe_guest_has_no_card(self):
        one, two = self.spec(2, rxe=[2])["processes"]
        self.assertNotIn("vroce.rxe", " ".join(one["argv"]))
        self.assertIn("vroce.rxe=52:54:00:77:00:02", " ".join(two["argv"]))
        self.assertFalse(any(word.startswith("vroce,")
                             for word in two["argv"]))

    def test_commas_in_paths_are_escaped(self):
        self.assertTrue(any("path=/a,,b" in word for word in
                            self.spec(1)["processes"][0]["argv"]))

    def test_an_iommu_comes_before_the_devices_that_it_translates_for(self):
        self.assertNotIn("intel-iommu", self.spec(1)["processes"][0]["argv"])
        argv = self.spec(1, iommu=True)["processes"][0]["argv"]
        devices = [argv[i + 1] for i, word in enumerate(argv)
                   if word == "-device"]
        self.assertEqual(devices[0], "intel-iommu")
        self.assertIn("intel_iommu=on iommu.strict=1",
                      argv[argv.index("-append") + 1])

    def test_accel(self):
        self.assertEqual(guest.choose_accel("tcg"), "tcg")
        with mock.patch("os.open", side_effect=OSError(13, "no")):
            self.assertEqual(guest.choose_accel("auto"), "tcg")
            with self.assertRaisesRegex(UserError, "--accel tcg"):
                guest.choose_accel("kvm")


class Wire(unittest.TestCase):
    def test_a_pair_holds_many_frames(self):
        near, far = wire.make_pair()
        with near, far:
            near.setblocking(False)
            for _ in range(32):
                near.send(bytes(4156))


class Monitor(unittest.TestCase):
    def test_conversation(self):
        with tempfile.TemporaryDirectory() as folder, \
                socket.socket(socket.AF_UNIX) as server:
            path = f"{folder}/qmp.sock"
            server.bind(path)
            server.listen(1)
            thread = threading.Thread(target=self.serve, args=[server])
            thread.start()
            with qmp.QMP(path) as client:
                self.assertEqual(client.execute("query-name"), {"name": "x"})
                self.assertEqual(client.events[0]["event"], "STOP")
                with self.assertRaisesRegex(qmp.QMPError, "no such command"):
                    client.execute("frobnicate")
            thread.join()

    @staticmethod
    def serve(server):
        connection, _ = server.accept()
        with connection, connection.makefile("rw") as file:
            def say(message):
                file.write(json.dumps(message) + "\r\n")
                file.flush()
            say({"QMP": {"version": {}}})
            file.readline()
            say({"return": {}})
            file.readline()
            say({"event": "STOP"})
            say({"return": {"name": "x"}})
            file.readline()
            say({"error": {"class": "CommandNotFound",
                           "desc": "no such command"}})

    def test_nobody_there(self):
        with self.assertRaisesRegex(UserError, "cannot connect"):
            qmp.QMP("/nonexistent/socket")


class Oops(Folders):
    def watch(self, before, after):
        one = guest.Guest(1, guest.CARD, self.folder, self.folder)
        log = one.log("console")
        log.write_text(before)
        stream = io.StringIO()
        with oops.ConsoleWatch([one], stream=stream) as watch, \
                log.open("a") as file:
            file.write(after)
        return watch, stream.getvalue()

    def test_reports_what_is_new(self):
        watch, text = self.watch(
            "[ 1.0] Oops: old\r\r\n",
            "[ 2.0] BUG: kernel NULL pointer dereference\r\r\n"
            "[ 2.0] RIP: 0010:vroce_probe\r\r\n"
            "[ 2.0] ---[ end trace 0000000000000000 ]---\r\r\n"
            "[ 3.0] quiet\r\r\n")
        self.assertEqual(len(watch.reports), 1)
        self.assertIn("NULL pointer", watch.reports[0][1])
        self.assertIn("RIP: 0010:vroce_probe", text)
        self.assertNotIn("old", text)
        self.assertNotIn("quiet", text)

    def test_is_silent_about_ordinary_lines(self):
        watch, text = self.watch("", "[ 1.0] vroce: loading\n"
                                 "[ 1.1] debugging enabled\n")
        self.assertEqual((watch.reports, text), ([], ""))


class Progress(unittest.TestCase):
    def test_is_no_part_of_what_is_collected(self):
        for tty in (False, True):
            stream = io.StringIO()
            reporter = util._Reporter()
            reporter.stream, reporter.tty, reporter.period = stream, tty, 0.01
            running = util.step("running")
            running.began = time.monotonic()
            with contextlib.redirect_stderr(io.StringIO()) as collected:
                reporter.begin(running)
                while "running 0 s" not in stream.getvalue():
                    time.sleep(0.01)
                reporter.end(running)
                reporter.line("text")
            lines = ["vroce: text\n"] if tty else \
                ["vroce: running ...\n", "vroce: text\n"]
            self.assertEqual(collected.getvalue(), "".join(lines))


class Ktap(unittest.TestCase):
    def statuses(self, text, status=0):
        return [outcome.status for outcome in ktap.parse(text, "p", status)]

    def test_results(self):
        text = ("TAP version 13\n1..3\n# Starting\nok 1 global.a\n"
                "# expected 1 == 2\nnot ok 2 global.b\n"
                "ok 3 global.c # SKIP no device\n")
        outcomes = ktap.parse(text, "p", 1)
        self.assertEqual([o.status for o in outcomes],
                         ["pass", "fail", "skip"])
        self.assertEqual(outcomes[1].name, "p: global.b")
        self.assertIn("expected 1 == 2", outcomes[1].output)

    def test_a_crash_is_a_failure(self):
        self.assertEqual(self.statuses("1..2\nok 1 a\n", 139),
                         ["pass", "fail"])
        self.assertEqual(self.statuses("", 127), ["fail"])
        self.assertEqual(self.statuses("1..1\nok 1 a\n", 1),
                         ["pass", "fail"])

    def test_a_skipped_program(self):
        self.assertEqual(self.statuses("1..0 # SKIP no device\n", 4),
                         ["skip"])


class Runner(Folders):
    def session(self, *statuses, only=None):
        session = testrun.Session(types.SimpleNamespace(yes=False, slow=False,
                                                        only=only))
        session.suite = "s"
        for number, status in enumerate(statuses):
            session.add(suites.Case(f"case{number}", status, 0.5, "why"))
        return session

    def test_json(self):
        with contextlib.redirect_stdout(io.StringIO()):
            session = self.session("pass", "fail", "skip")
        path = self.folder / "results.json"
        testrun.write_results(path, session.results)
        steps = json.loads(path.read_text())["steps"]
        self.assertEqual([one["status"] for one in steps],
                         ["pass", "fail", "skip"])
        self.assertEqual(set(steps[0]),
                         {"name", "status", "seconds", "figures"})

    def test_a_program_that_hangs(self):
        script = "echo 1..2; echo ok 1 a; echo half of b; exec sleep 60"
        (good, bad), _seconds = suites._run_tap(["sh", "-c", script], "p", 0.5)
        self.assertEqual((good.status, bad.status), ("pass", "fail"))
        self.assertRegex(bad.output, r"half of b\s+no end after 0\.5 s")

    def test_a_program_that_does_not_start(self):
        (bad,), _seconds = suites._run_tap(["/no/such"], "p", 0.5)
        self.assertEqual(bad.status, "fail")
        self.assertIn("No such file", bad.output)

    def test_what_failed_is_said_again(self):
        with contextlib.redirect_stdout(io.StringIO()):
            session = self.session("pass", "fail", "skip")
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            session.print_failures()
        self.assertEqual(printed.getvalue(),
                         "failed: s: case1\n          | why\n")

    def test_an_empty_suite_fails(self):
        with contextlib.redirect_stdout(io.StringIO()), \
                contextlib.redirect_stderr(io.StringIO()):
            session = self.session()
            testrun._run_suite(suites.Suite("x", "", list, lambda s: None),
                               session)
        self.assertEqual(session.count("fail"), 1)

    def test_each_outcome_of_a_unittest_counts(self):
        class Broken(unittest.TestCase):
            @classmethod
            def setUpClass(cls):
                raise RuntimeError("no room")

            def test(self):
                pass

        class Mixed(unittest.TestCase):
            def test_good(self):
                pass

            def test_part(self):
                with self.subTest(part=1):
                    self.fail("no")

        session = self.session()
        tests = [Broken("test"), Mixed("test_good"), Mixed("test_part")]
        with mock.patch.object(suites, "tool_tests", lambda: tests), \
                contextlib.redirect_stdout(io.StringIO()):
            suites.run_tool(session)
        self.assertEqual([case.status for _suite, case in session.results],
                         ["fail", "pass", "fail"])

    def test_only_what_was_asked_for(self):
        one = suites.Suite("one", "", lambda slow: ["ping", "rping"], print)
        other = suites.Suite("other", "", lambda slow: ["bandwidth"], print)
        self.assertEqual(testrun.having_cases([one, other],
                                              self.session(only="ping")), [one])
        with self.assertRaisesRegex(UserError, "no case has 'pong' in its name"):
            testrun.having_cases([one, other], self.session(only="pong"))


if __name__ == "__main__":
    unittest.main()
