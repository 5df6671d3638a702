# SPDX-License-Identifier: GPL-2.0-or-later
"""What the two-guest tests in tests/e2e are written with.

A test is a function with the decorator @test.  It gets a Bench, raises
AssertionError (or UserError) to fail and Skip to be skipped, and may return a
dict of figures.
"""

import importlib.util
import sys
from dataclasses import dataclass
from typing import Callable

from .guest import CARD, RXE
from .pair import run_pair
from .util import REPO

FOLDER = REPO / "tests" / "e2e"

# The labs that tests run in: what guests 1 and 2 are.
CARDS = (CARD, CARD)
CARD_AND_RXE = (CARD, RXE)
RXES = (RXE, RXE)


class Skip(Exception):
    """The test cannot run here; the message says why."""


@dataclass
class Test:
    name: str
    function: Callable
    lab: tuple


TESTS = []


def test(name, lab=CARDS):
    """Register a function as the test of that name, to run in such a lab."""
    def register(function):
        TESTS.append(Test(name, function, lab))
        return function
    return register


def load():
    """Import tests/e2e/*.py; returns all registered tests, in file order."""
    if not TESTS:
        for path in sorted(FOLDER.glob("*.py")):
            spec = importlib.util.spec_from_file_location(
                f"vroce_e2e_{path.stem}", path)
            module = importlib.util.module_from_spec(spec)
            sys.modules[spec.name] = module
            spec.loader.exec_module(module)
    return TESTS


class Bench:
    """The lab that a test runs in, with shorthands; folder is for files."""

    def __init__(self, lab, folder):
        self.lab = lab
        self.folder = folder

    def guest(self, number):
        return self.lab.guest(number)

    def run(self, number, command, **options):
        """Run a command in a guest, which must succeed; returns its output."""
        return self.guest(number).run(command, **options).stdout

    def pair(self, a, b, **options):
        """Run a server and its client, which must succeed; see run_pair()."""
        result = run_pair(self.lab, a, b, **options)
        assert result.passed, (
            f"{result.why()}\n"
            f"a: {result.a.command}\n{result.a.stdout}{result.a.stderr}"
            f"b: {result.b.command}\n{result.b.stdout}{result.b.stderr}")
        return result
