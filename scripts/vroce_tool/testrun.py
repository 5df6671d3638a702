# SPDX-License-Identifier: GPL-2.0-or-later
"""The command `vroce test`: all tests of the project, each case by name."""

import contextlib
import json
import os
import subprocess
import sys
import time
import traceback
import unittest
from pathlib import Path
from typing import Callable, NamedTuple

from . import e2e, guestbuild, hostpkgs, ktap, programs, qemu, setup
from .guest import CARD
from .ktap import FAIL, PASS, SKIP
from .lab import Starter, up_options
from .util import (REPO, Command, UserError, cache_dir, digest, elapsed, run,
                   scratch, step, write_atomic)

KSELFTEST_TIMEOUT = 600
QTEST_TIMEOUT = 300
# Meson's limits are for a machine with nothing else to do.
HANG_FACTOR = "4"


class Case(NamedTuple):
    name: str
    status: str
    seconds: float
    output: str = ""
    figures: dict = {}


class Suite(NamedTuple):
    """list(): names of the cases, as far as known without running them."""
    name: str
    help: str
    list: Callable
    run: Callable       # run(session): reports each case to session.add()


class Session:
    """One run of the tests: what has been started, and the results."""

    def __init__(self, options):
        self.options = options
        self.began = time.monotonic()
        self.suite = None
        self.results = []           # (suite's name, Case)
        self._artifacts = None

    @property
    def artifacts(self):
        """What `vroce setup` makes; made when first asked for."""
        if not self._artifacts:
            self._artifacts = setup.ensure(yes=self.options.yes)
        return self._artifacts

    def add(self, case):
        self.results.append((self.suite, case))
        at = elapsed(time.monotonic() - self.began)
        figures = programs.describe(case.figures)
        print(f"[{at:>7}] {case.status} {self.suite}: {case.name} "
              f"({elapsed(case.seconds)}){': ' * bool(figures)}{figures}",
              flush=True)
        if case.output and case.status != PASS:
            for line in case.output.rstrip().splitlines()[-60:]:
                print(f"          | {line}", flush=True)

    def add_outcomes(self, outcomes, seconds):
        """Add a program's outcomes; their shares of its time are unknown."""
        for index, outcome in enumerate(outcomes):
            self.add(Case(outcome.name, outcome.status,
                          seconds if index == 0 else 0.0, outcome.output))

    @contextlib.contextmanager
    def lab(self, modes):
        """A lab for tests, of guests with those modes; gone afterwards."""
        options = up_options(
            len(modes), lab=f"test-{os.getpid()}",
            rxe=[number for number, mode in enumerate(modes, 1)
                 if mode != CARD])
        lab = Starter(options, self.artifacts).start()
        try:
            yield lab
        finally:
            lab.stop()

    def count(self, status):
        return sum(case.status == status for _suite, case in self.results)


# ------------------------------------------------------------------- suites

def host_build():
    """The folder in the cache where meson builds what runs on the host.

    One for each checkout, since meson remembers its sources by their path.
    With sanitizers: a test that passes by luck is none.
    """
    folder = cache_dir() / "build" / f"host-{digest(str(REPO))}"
    if not (folder / "build.ninja").exists():
        run(["meson", "setup", "-Db_sanitize=address,undefined",
             "-Db_lundef=false", folder, REPO], what="meson setup")
    return folder


def list_unit():
    result = subprocess.run(["meson", "test", "-C", host_build(), "--list"],
                            text=True, capture_output=True, check=True)
    # Meson lists "PROJECT:SUITE / NAME", and passes on what ninja says.
    return [line for line in result.stdout.splitlines() if " / " in line]


def run_unit(session):
    build = host_build()
    run(["ninja", "-C", build], what="building the engine and its tests")
    began = time.monotonic()
    log = build / "meson-logs" / "testlog.json"
    log.unlink(missing_ok=True)
    result = subprocess.run(["meson", "test", "-C", build,
                             "--timeout-multiplier", HANG_FACTOR], text=True,
                            capture_output=True, errors="replace", check=False)
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


def list_tool():
    return [test.id() for test in tool_tests()]


class _ToolResult(unittest.TestResult):
    """Reports each outcome to the session."""

    def __init__(self, session):
        super().__init__()
        self.session = session

    def startTest(self, test):
        super().startTest(test)
        self.began = time.monotonic()
        self.outcome = PASS, ""

    def addError(self, test, err):
        self.outcome = FAIL, self._exc_info_to_string(err, test)

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


def run_tool(session):
    result = _ToolResult(session)
    for test in tool_tests():
        test.run(result)


def list_qtest():
    return ["the register-level tests of the device"]


def run_qtest(session):
    program = session.artifacts.qemu_build / qemu.QTEST
    env = {**os.environ,
           "QTEST_QEMU_BINARY": str(session.artifacts.qemu),
           "G_TEST_DBUS_DAEMON": "/bin/false"}
    began = time.monotonic()
    try:
        result = subprocess.run(
            [program, "--tap", "-k"], env=env, text=True, errors="replace",
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            timeout=QTEST_TIMEOUT, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        session.add(Case("vroce-test", FAIL, time.monotonic() - began,
                         str(error)))
        return
    session.add_outcomes(ktap.parse(result.stdout, "vroce-test",
                                    result.returncode),
                         time.monotonic() - began)


def list_guest():
    return [f"kselftest {path.stem}" for path in
            sorted((REPO / "tests" / "guest").glob("*_test.c"))]


def run_guest(session):
    programs = guestbuild.build_tests()
    with session.lab((CARD,)) as lab, lab.watch() as watch:
        guest = lab.guest(1)
        for program in programs:
            began = time.monotonic()
            seen = len(watch.reports)
            result = guest.run(f"cd /artifacts && ./{program} 2>&1",
                               timeout=KSELFTEST_TIMEOUT, check=False)
            outcomes = ktap.parse(result.stdout, Path(program).name,
                                  result.returncode)
            session.add_outcomes(outcomes, time.monotonic() - began)
            watch.check()
            if len(watch.reports) > seen:
                session.add(Case(f"{program}: kernel", FAIL, 0.0,
                                 watch.reports[seen][1]))


def list_pair():
    return [test.name for test in e2e.load()]


def run_pair(session):
    guestbuild.build_tests()
    tests = e2e.load()
    for modes in dict.fromkeys(test.lab for test in tests):
        with scratch("e2e") as folder, session.lab(modes) as lab:
            for test in tests:
                if test.lab == modes:
                    session.add(_run_e2e(test, e2e.Bench(lab, folder)))


def _run_e2e(test, bench):
    began = time.monotonic()
    status, output, figures = PASS, "", {}
    with bench.lab.watch() as watch:
        try:
            figures = test.function(bench) or {}
        except e2e.Skip as reason:
            status, output = SKIP, str(reason)
        except (AssertionError, UserError) as error:
            status, output = FAIL, str(error) or traceback.format_exc()
        except Exception:   # a test's own fault must not end the others
            status, output = FAIL, traceback.format_exc()
        if watch.check() and status == PASS:
            status = FAIL
            output = f"a guest's kernel reports: {watch.reports[0][1]}"
    return Case(test.name, status, time.monotonic() - began, output, figures)


# The cheap ones first: a mistake shows early.
SUITES = [
    Suite("tool", "this command's own logic, without a guest", list_tool,
          run_tool),
    Suite("unit", "the engine: unit tests, simulation, fuzz corpora",
          list_unit, run_unit),
    Suite("qtest", "the device's registers and rings, without a guest system",
          list_qtest, run_qtest),
    Suite("guest", "kselftests in one guest", list_guest, run_guest),
    Suite("pair", "programs between two guests", list_pair, run_pair),
]


# ------------------------------------------------------------------ command

def add_arguments(parser):
    names = [suite.name for suite in SUITES]
    parser.add_argument("suite", metavar="SUITE", nargs="*",
                        help=f"which suites, of {', '.join(names)} (default: "
                        "all)")
    parser.add_argument("--list", action="store_true",
                        help="list the suites and their cases, run none")
    parser.add_argument("--json", metavar="FILE", type=Path,
                        help="write the results as data")
    parser.add_argument("--yes", "-y", action="store_true",
                        help="install missing host packages without asking")


def chosen_suites(names):
    known = {suite.name: suite for suite in SUITES}
    for name in names:
        if name not in known:
            raise UserError(f"there is no suite '{name}'; there are "
                            f"{', '.join(known)}")
    return [suite for suite in SUITES if not names or suite.name in names]


def run_command(args):
    suites = chosen_suites(args.suite)
    if args.list:
        for suite in suites:
            print(f"{suite.name}: {suite.help}")
            for name in suite.list():
                print(f"    {name}")
        return 0
    hostpkgs.ensure(args.yes)
    session = Session(args)
    try:
        for suite in suites:
            session.suite = suite.name
            _run_suite(suite, session)
    finally:
        if args.json:
            write_results(args.json, session.results)
    failed = session.count(FAIL)
    print(f"{session.count(PASS)} passed, {failed} failed, "
          f"{session.count(SKIP)} skipped", flush=True)
    return 1 if failed or not session.count(PASS) else 0


def _run_suite(suite, session):
    began, before = time.monotonic(), len(session.results)
    try:
        with step(f"suite {suite.name}"):
            suite.run(session)
    except UserError as error:
        session.add(Case("the suite itself", FAIL, time.monotonic() - began,
                         str(error)))
    if len(session.results) == before:
        # An empty suite is a defect, not a success.
        session.add(Case("the suite itself", FAIL, time.monotonic() - began,
                         "it has no test"))


def write_results(path, results):
    """The results as the data that --json promises."""
    steps = [{"name": f"{suite}: {case.name}", "status": case.status,
              "seconds": round(case.seconds, 3), "figures": case.figures,
              **({"output": case.output[-4000:]} if case.status == FAIL
                 else {})}
             for suite, case in results]
    write_atomic(path.absolute(), json.dumps({"steps": steps}, indent=2)
                 + "\n")


COMMANDS = [
    Command("test", "run the tests", add_arguments, run_command,
            "Set up what is missing, run the tests and report each case."),
]
