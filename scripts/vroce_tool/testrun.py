# SPDX-License-Identifier: GPL-2.0-or-later
"""The command `vroce test`: all tests of the project, each case by name."""

import contextlib
import json
import os
import time

from . import benchplot, hostpkgs, programs, setup
from .guest import CARD
from .ktap import FAIL, PASS, SKIP
from .lab import Starter, up_options
from .suites import SUITES, Case
from .util import (Command, UserError, elapsed, output_file, step,
                   write_atomic)


class Session:
    """One run of the tests: what has been started, and the results."""

    def __init__(self, options):
        self.options = options
        self.slow = options.slow    # run the cases that take long, too
        self.only = options.only    # run those with this in their name, or None
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

    def wants(self, name):
        """Is the case of this name, as the suite lists it, to be run?"""
        return self.only is None or self.only in name

    def add(self, case):
        self.results.append((self.suite, case))
        at = elapsed(time.monotonic() - self.began)
        figures = programs.describe(case.figures)
        print(f"[{at:>7}] {case.status} {self.suite}: {case.name} "
              f"({elapsed(case.seconds)}){': ' * bool(figures)}{figures}",
              flush=True)
        if case.status != PASS:
            _print_output(case)

    def add_outcomes(self, outcomes, seconds):
        """Add a program's outcomes; their shares of its time are unknown."""
        for index, outcome in enumerate(outcomes):
            self.add(Case(outcome.name, outcome.status,
                          seconds if index == 0 else 0.0, outcome.output))

    @contextlib.contextmanager
    def lab(self, shape):
        """A lab of that shape (see e2e.Shape) for tests; gone afterwards."""
        options = up_options(
            len(shape.modes), lab=f"test-{os.getpid()}",
            rxe=[number for number, mode in enumerate(shape.modes, 1)
                 if mode != CARD], **dict(shape.options))
        lab = Starter(options, self.artifacts).start()
        try:
            yield lab
        finally:
            lab.stop()

    def count(self, status):
        return sum(case.status == status for _suite, case in self.results)

    def print_failures(self):
        """Say again what failed: it may have scrolled out of sight."""
        for suite, case in self.results:
            if case.status == FAIL:
                print(f"failed: {suite}: {case.name}")
                _print_output(case)


def _print_output(case):
    for line in case.output.rstrip().splitlines()[-60:]:
        print(f"          | {line}", flush=True)


# ------------------------------------------------------------------ command

def add_arguments(parser):
    names = [suite.name for suite in SUITES]
    parser.add_argument("suite", metavar="SUITE", nargs="*",
                        help=f"which suites, of {', '.join(names)} (default: "
                        "all)")
    parser.add_argument("--slow", action="store_true",
                        help="the cases that take long, too")
    parser.add_argument("-k", metavar="TEXT", dest="only",
                        help="only cases with TEXT in their name")
    parser.add_argument("--list", action="store_true",
                        help="list the suites and their cases, run none")
    parser.add_argument("--json", metavar="FILE", type=output_file,
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


def having_cases(suites, session):
    """The suites; with -k, those that have a case with that in its name."""
    if session.only is None:
        return suites
    chosen = [suite for suite in suites
              if any(map(session.wants, suite.list(session.slow)))]
    if not chosen:
        raise UserError(f"no case has '{session.only}' in its name; 'vroce test "
                        "--list' lists them, with --slow those that take long, "
                        "too")
    return chosen


def run_command(args):
    suites = chosen_suites(args.suite)
    session = Session(args)
    if args.list:
        for suite in having_cases(suites, session):
            print(f"{suite.name}: {suite.help}")
            for name in filter(session.wants, suite.list(args.slow)):
                print(f"    {name}")
        return 0
    # A test that lacks its program would be skipped.
    hostpkgs.ensure(args.yes, hostpkgs.PACKAGES + benchplot.PACKAGES)
    suites = having_cases(suites, session)
    try:
        for suite in suites:
            session.suite = suite.name
            _run_suite(suite, session)
    finally:
        if args.json:
            write_results(args.json, session.results)
    session.print_failures()
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
