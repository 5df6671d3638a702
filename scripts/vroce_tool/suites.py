# SPDX-License-Identifier: GPL-2.0-or-later
"""The suites of `vroce test`: what each one's cases are, and running them.

A suite is list(slow), the names of its cases as far as they are known without
running them, and run(session), which reports each case to session.add().  Of
the cases that take long only those that slow asks for are listed and run; of
all cases, those whose listed name session.wants().
"""

import json
import os
import subprocess
import time
import traceback
import unittest
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Callable, NamedTuple

from . import e2e, genericfuzz, guestbuild, hostbuild, ktap, qemu, why
from .guest import CARD
from .ktap import FAIL, PASS, SKIP
from .util import REPO, UserError, scratch

KSELFTEST_TIMEOUT = 600
QTEST_TIMEOUT = 300
SANITIZED_QTEST_TIMEOUT = 900
GENERIC_FUZZ_SECONDS = 600
# Meson's limits are for a machine with nothing else to do.
HANG_FACTOR = "4"


class Case(NamedTuple):
    name: str
    status: str
    seconds: float
    output: str = ""
    figures: dict = {}


class Suite(NamedTuple):
    name: str
    help: str
    list: Callable
    run: Callable


def _run_tap(command, name, timeout, env=None):
    """The outcomes of a test program called name that speaks TAP, its time."""
    began = time.monotonic()
    try:
        result = subprocess.run(
            command, env=env, text=True, errors="replace",
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=timeout,
            check=False)
        output, status = result.stdout, result.returncode
    except subprocess.TimeoutExpired as error:
        output = (f"{(error.stdout or b'').decode(errors='replace')}\n"
                  f"no end after {timeout} s")
        status = None
    except OSError as error:
        output, status = str(error), None
    return ktap.parse(output, name, status), time.monotonic() - began


class _Meson:
    """A suite of those tests of the host build that meson's options choose."""

    def __init__(self, *choice):
        self.choice = choice

    def list(self, _slow):
        build = hostbuild.configure(hostbuild.SANITIZED)
        result = subprocess.run(["meson", "test", "-C", build, "--list",
                                 *self.choice],
                                text=True, capture_output=True, check=True)
        # Meson lists "PROJECT:SUITE / NAME", and passes on what ninja says.
        return [line for line in result.stdout.splitlines() if " / " in line]

    def run(self, session):
        build = hostbuild.build(hostbuild.SANITIZED,
                                what="the engine and its tests")
        names = [name.rpartition(" / ")[2] for name in self.list(session.slow)
                 if session.wants(name)]
        began = time.monotonic()
        log = build / "meson-logs" / "testlog.json"
        log.unlink(missing_ok=True)
        result = subprocess.run(["meson", "test", "-C", build, *self.choice,
                                 "--timeout-multiplier", HANG_FACTOR, *names],
                                text=True, capture_output=True,
                                errors="replace", check=False)
        if not log.exists():
            session.add(Case("meson test", FAIL, time.monotonic() - began,
                             result.stdout + result.stderr))
            return
        statuses = {"OK": PASS, "EXPECTEDFAIL": PASS, "SKIP": SKIP}
        for line in log.read_text().splitlines():
            test = json.loads(line)
            session.add(Case(test["name"], statuses.get(test["result"], FAIL),
                             test["duration"], test.get("stdout", "")
                             + test.get("stderr", "")))


class _Simulation:
    """The suite of the simulation: each scenario on each of both links."""

    SEEDS, SLOW_SEEDS = 1, 20
    TIMEOUT = 1800
    TRACE = REPO / "tests" / "sim" / "check_trace.py"

    def __init__(self):
        self._program = None

    @property
    def program(self):
        """The simulation, built when first asked for."""
        if not self._program:
            self._program = hostbuild.build(
                hostbuild.SANITIZED, "tests/sim/sim",
                what="the simulation") / "tests" / "sim" / "sim"
        return self._program

    def list(self, slow):
        """The scenarios; each has a case a link, and one that compares them."""
        lines = subprocess.run([self.program, "--list"], text=True,
                               capture_output=True, check=True).stdout
        return ["trace"] + [line.split()[0] for line in lines.splitlines()
                            if slow or not line.endswith("(slow)")]

    def command(self, name, slow):
        if name == "trace":
            return [self.TRACE, self.program]
        seeds = self.SLOW_SEEDS if slow else self.SEEDS
        return [self.program, "--tap", "--scenario", name, "--seeds",
                str(seeds)]

    def run(self, session):
        names = [name for name in self.list(session.slow)
                 if session.wants(name)]
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            runs = [pool.submit(_run_tap, self.command(name, session.slow),
                                name, self.TIMEOUT) for name in names]
            for future in runs:
                session.add_outcomes(*future.result())


def tool_tests():
    """The TestCases of tests/tool, as unittest finds them."""
    def flatten(suite):
        for item in suite:
            if isinstance(item, unittest.TestSuite):
                yield from flatten(item)
            else:
                yield item
    folder = str(REPO / "tests" / "tool")
    return list(flatten(unittest.TestLoader().discover(folder, "test_*.py",
                                                       folder)))


def list_tool(_slow):
    return [test.id() for test in tool_tests()]


class _ToolResult(unittest.TestResult):
    """Reports each outcome to the session."""

    def __init__(self, session):
        super().__init__()
        self.session = session
        self.outcome = None

    def startTest(self, test):
        super().startTest(test)
        self.began = time.monotonic()
        self.outcome = PASS, ""

    def addError(self, test, err):
        text = self._exc_info_to_string(err, test)
        if self.outcome:
            self.outcome = FAIL, text
        else:       # what several tests share could not be made
            self.session.add(Case(test.id(), FAIL, 0.0, text))

    addFailure = addError

    def addSubTest(self, test, subtest, err):
        if err:
            self.addError(test, err)

    def addSkip(self, test, reason):
        self.outcome = SKIP, reason

    def stopTest(self, test):
        status, output = self.outcome
        self.session.add(Case(test.id(), status,
                              time.monotonic() - self.began, output))
        self.outcome = None


def run_tool(session):
    # As a suite, or no setUpClass() would be called.
    unittest.TestSuite(test for test in tool_tests()
                       if session.wants(test.id())).run(_ToolResult(session))


def list_qtest(_slow):
    return ["the register-level tests of the device"]


def run_qtest(session):
    _run_qtest(session, session.artifacts.qemu_build / qemu.QTEST,
               session.artifacts.qemu, QTEST_TIMEOUT)


def _run_qtest(session, program, binary, timeout):
    env = {**os.environ, "QTEST_QEMU_BINARY": str(binary),
           "G_TEST_DBUS_DAEMON": "/bin/false"}
    session.add_outcomes(*_run_tap([program, "--tap", "-k"], "vroce-test",
                                   timeout, env))


def list_guest(_slow):
    return [f"kselftest {path.stem}" for path in
            sorted((REPO / "tests" / "guest").glob("*_test.c"))]


def run_guest(session):
    left = [program for program in guestbuild.build_tests()
            if session.wants(f"kselftest {Path(program).name}")]
    try:
        with session.lab(e2e.Shape((CARD,))) as lab, lab.watch() as watch:
            while left:
                _run_kselftest(session, lab, watch, left.pop(0))
    except UserError as error:
        if not left:
            raise
        for program in left:
            session.add(Case(f"kselftest {Path(program).name}", FAIL, 0.0,
                             f"it was not run: {error}"))


def _run_kselftest(session, lab, watch, program):
    began = time.monotonic()
    seen = len(watch.reports)
    name = Path(program).name
    try:
        result = lab.guest(1).run(f"cd /artifacts && ./{program} 2>&1",
                                  timeout=KSELFTEST_TIMEOUT, check=False)
    except UserError as error:      # it hangs; the others do not
        session.add(Case(f"kselftest {name}", FAIL, time.monotonic() - began,
                         _with_waits(lab, watch, str(error))))
        return
    outcomes = ktap.parse(result.stdout, name, result.returncode)
    session.add_outcomes(outcomes, time.monotonic() - began)
    watch.check()
    if len(watch.reports) > seen:
        session.add(Case(f"{program}: kernel", FAIL, 0.0,
                         watch.reports[seen][1]))


class _Guests:
    """A suite of the tests between guests in a folder of tests/."""

    def __init__(self, folder):
        self.folder = folder

    def tests(self, slow):
        return [test for test in e2e.load(self.folder) if slow or not test.slow]

    def list(self, slow):
        return [test.name for test in self.tests(slow)]

    def run(self, session):
        guestbuild.build_tests()
        shared = {}
        for test in self.tests(session.slow):
            if not session.wants(test.name):
                continue
            shared.setdefault(id(test) if test.own_lab else test.lab,
                              []).append(test)
        for tests in shared.values():
            self._run_in_lab(session, tests)

    @staticmethod
    def _run_in_lab(session, tests):
        left = list(tests)
        try:
            with scratch("e2e") as folder, session.lab(tests[0].lab) as lab:
                while left:
                    session.add(_run_e2e(left.pop(0), e2e.Bench(lab, folder)))
        except UserError as error:
            if not left:
                raise
            for test in left:
                session.add(Case(test.name, FAIL, 0.0,
                                 f"it was not run: {error}"))


class _Hostile(_Guests):
    """Guests that misbehave; the slow cases have a QEMU under sanitizers."""

    QTEST = "register-level tests under sanitizers"
    FUZZER = "QEMU's generic fuzzer on the card"

    def list(self, slow):
        return super().list(slow) + [self.QTEST, self.FUZZER] * slow

    def run(self, session):
        super().run(session)
        if session.slow and session.wants(self.QTEST):
            genericfuzz.build()
            _run_qtest(session, qemu.build_dir("sanitized") / qemu.QTEST,
                       qemu.binary("sanitized"), SANITIZED_QTEST_TIMEOUT)
        if session.slow and session.wants(self.FUZZER):
            began = time.monotonic()
            count, findings = genericfuzz.run(GENERIC_FUZZ_SECONDS)
            session.add(Case(self.FUZZER, FAIL if findings else PASS,
                             time.monotonic() - began, findings,
                             {"executions": count}))


def _with_waits(lab, watch, output):
    """What a case that failed is told by, and what stands still in its lab."""
    # Of a kernel in trouble no questions are asked.
    try:
        waits = [] if watch.check() else why.sentences(lab)
    except Exception:       # the case's own failure is what counts
        waits = [traceback.format_exc()]
    return "\n".join([output, *waits * (waits[:1] != [why.NOTHING])])


def _run_e2e(test, bench):
    began = time.monotonic()
    status, output, figures = PASS, "", {}
    with bench.lab.watch() as watch:
        try:
            figures = test.function(bench) or {}
        except e2e.Skip as reason:
            status, output = SKIP, str(reason)
        except (AssertionError, UserError) as error:
            status = FAIL
            output = _with_waits(bench.lab, watch,
                                 str(error) or traceback.format_exc())
        except Exception:   # a test's own fault must not end the others
            status, output = FAIL, traceback.format_exc()
        if watch.check() and status == PASS and not test.panics:
            status = FAIL
            output = f"a guest's kernel reports: {watch.reports[0][1]}"
    return Case(test.name, status, time.monotonic() - began, output, figures)


UNIT = _Meson("--no-suite", "sim")
SIM = _Simulation()
PAIR, IMPAIR, WHY = map(_Guests, ("e2e", "impair", "why"))
HOSTILE = _Hostile("hostile")

# The cheap ones first: a mistake shows early.
SUITES = [
    Suite("tool", "this command's own logic, without a guest", list_tool,
          run_tool),
    Suite("unit", "the engine: unit tests, fuzz corpora", UNIT.list, UNIT.run),
    Suite("sim", "the engine in a simulated fabric that loses frames",
          SIM.list, SIM.run),
    Suite("qtest", "the device's registers and rings, without a guest system",
          list_qtest, run_qtest),
    Suite("guest", "kselftests in one guest", list_guest, run_guest),
    Suite("pair", "programs between two guests", PAIR.list, PAIR.run),
    Suite("impair", "two guests on a wire that loses frames", IMPAIR.list,
          IMPAIR.run),
    Suite("why", "what 'vroce why' says of guests that wait", WHY.list,
          WHY.run),
    Suite("hostile", "guests that break rules, resets and removals under "
          "traffic", HOSTILE.list, HOSTILE.run),
]
