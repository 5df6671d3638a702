# SPDX-License-Identifier: GPL-2.0-or-later
"""Suites between guests: no case is lost, whatever happens to its lab."""

import contextlib
import sys
import types
import unittest
from pathlib import Path
from unittest import mock

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
sys.path.insert(0, str(SCRIPTS))

from vroce_tool import e2e, suites, why  # noqa: E402
from vroce_tool.ktap import FAIL, PASS  # noqa: E402
from vroce_tool.util import UserError  # noqa: E402


class _Lab:
    guests = ()

    def __init__(self, reports=()):
        self.reports = [(1, text) for text in reports]

    @contextlib.contextmanager
    def watch(self):
        yield self

    def check(self):
        return bool(self.reports)

    def guest(self, _number):
        return self

    def run(self, command, **_options):
        if "bad" in command:
            raise UserError("no")
        return types.SimpleNamespace(stdout="TAP version 13\n1..1\nok 1 one\n",
                                     returncode=0)


class _Session:
    slow = False

    def __init__(self, labs):
        self.labs = iter(labs)
        self.cases = []

    @contextlib.contextmanager
    def lab(self, _shape):
        lab = next(self.labs)
        if isinstance(lab, UserError):
            raise lab
        yield lab

    def add(self, case):
        self.cases.append(case)

    def add_outcomes(self, outcomes, _seconds):
        self.cases += outcomes

    def wants(self, _name):
        return True


def fails(_bench):
    raise UserError("no")


def case(name, function=lambda _bench: None):
    return e2e.Test(name, function, e2e.CARDS, False, False, False)


class Cases(unittest.TestCase):
    def run_cases(self, lab, *cases):
        session = _Session([lab])
        suites.PAIR._run_in_lab(session, cases)
        return session.cases

    def test_a_lab_that_does_not_boot(self):
        results = self.run_cases(UserError("guest 1 did not boot"),
                                 case("one"), case("two"))
        self.assertEqual([(result.name, result.status, result.output)
                          for result in results],
                         [(name, FAIL, "it was not run: guest 1 did not boot")
                          for name in ("one", "two")])

    def test_a_case_that_fails_ends_no_other(self):
        results = self.run_cases(_Lab(), case("one", fails),
                                 case("two"))
        self.assertEqual([result.status for result in results], [FAIL, PASS])

    def test_a_case_that_fails_says_what_stands_still(self):
        for lab, waits, output in (
                (_Lab(), ["QP 17 waits"], "no\nQP 17 waits"),
                (_Lab(), [why.NOTHING, "QP 17 is well"], "no"),
                (_Lab(["a panic"]), ["QP 17 waits"], "no")):
            with self.subTest(waits=waits), \
                    mock.patch.object(why, "sentences", return_value=waits):
                result, = self.run_cases(lab, case("one", fails))
                self.assertEqual((result.status, result.output),
                                 (FAIL, output))

    def test_questions_that_fail(self):
        with mock.patch.object(why, "sentences", side_effect=KeyError("qpn")):
            result, = self.run_cases(_Lab(), case("one", fails))
        self.assertEqual(result.status, FAIL)
        self.assertRegex(result.output, "(?s)^no\n.*KeyError: 'qpn'")


class Kselftests(unittest.TestCase):
    def run_them(self, lab):
        session = _Session([lab])
        with mock.patch.object(suites.guestbuild, "build_tests",
                               return_value=["t/bad", "t/good"]), \
                mock.patch.object(why, "sentences",
                                  return_value=["QP 17 waits"]):
            suites.run_guest(session)
        return session.cases

    def test_a_program_that_hangs_ends_no_other(self):
        bad, good = self.run_them(_Lab())
        self.assertEqual((bad.name, bad.status, bad.output),
                         ("kselftest bad", FAIL, "no\nQP 17 waits"))
        self.assertEqual(good.status, PASS)

    def test_a_lab_that_does_not_boot(self):
        self.assertEqual(
            [(one.name, one.status, one.output)
             for one in self.run_them(UserError("it did not boot"))],
            [(f"kselftest {name}", FAIL, "it was not run: it did not boot")
             for name in ("bad", "good")])


if __name__ == "__main__":
    unittest.main()
