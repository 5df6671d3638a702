# SPDX-License-Identifier: GPL-2.0-or-later
"""What the tests between guests, in tests/e2e and its like, are written with.

A test is a function with the decorator @test.  It gets a Bench, raises
AssertionError (or UserError) to fail and Skip to be skipped, and may return a
dict of figures.
"""

import functools
import importlib.util
import sys
from dataclasses import dataclass
from typing import Callable, NamedTuple

from .guest import CARD, RXE
from .pair import run_pair
from .util import REPO


class Shape(NamedTuple):
    """A lab: what each guest is, and options of `vroce up` by their names."""
    modes: tuple
    options: tuple = ()         # of (name, value)


def shape(*modes, **options):
    return Shape(modes, tuple(sorted(options.items())))


# The labs that most tests run in.
CARDS = shape(CARD, CARD)
CARD_AND_RXE = shape(CARD, RXE)
RXES = shape(RXE, RXE)
# A card that soon has nothing left, whose registers root may reach.
SMALL = shape(CARD, CARD, append=("iomem=relaxed",), card=(
    "num-qps=128", "num-cqs=96", "num-srqs=32", "num-mrs=256", "num-pds=64",
    "num-contexts=16", "num-pages=65536"))


class Skip(Exception):
    """The test cannot run here; the message says why."""


@dataclass
class Test:
    name: str
    function: Callable
    lab: Shape
    slow: bool
    own_lab: bool
    panics: bool


_registered = []


def test(name, lab=CARDS, slow=False, own_lab=False, panics=False):
    """Register a function as the test of that name.

    Tests that run in labs of the same shape share one, in file order, unless
    one asks for its own since it spoils it.  A slow one runs only when asked
    for.  What a kernel reports in one that panics is what it wants.
    """
    def register(function):
        _registered.append(Test(name, function, lab, slow, own_lab,
                                panics))
        return function
    return register


@functools.cache
def load(folder):
    """Import tests/FOLDER/*_test.py; returns what they register, in file order."""
    first = len(_registered)
    for path in sorted((REPO / "tests" / folder).glob("*_test.py")):
        spec = importlib.util.spec_from_file_location(
            f"vroce_{folder}_{path.stem}", path)
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
    return _registered[first:]


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
