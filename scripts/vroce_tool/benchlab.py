# SPDX-License-Identifier: GPL-2.0-or-later
"""Labs of a benchmark: made for it, stopped while another one is measured."""

import contextlib
import os

from . import setup
from .e2e import Bench
from .lab import Starter, up_options
from .util import UserError, say

# On a busy machine too; a bench that gives up has cost more than that.
BOOT_SECONDS = 600


@contextlib.contextmanager
def lab(name, count=2, wire=None, **options):
    """A Bench of a lab of that many guests, gone afterwards.

    wire: a Wire in the place of the usual one; options as `vroce up` has them.
    """
    starter = Starter(up_options(count, lab=f"bench-{name}-{os.getpid()}",
                                 capture=0, timeout=BOOT_SECONDS, **options),
                      setup.planned())
    if wire:
        starter.wire = wire
    started = starter.start()
    try:
        yield Bench(started, None)
    finally:
        started.stop()


def _all(bench, command):
    for guest in bench.lab.guests:
        with guest.qmp() as qmp:
            qmp.execute(command)


def freeze(bench):
    """Stop the guests of a lab: they cost nothing until thawed()."""
    _all(bench, "stop")


@contextlib.contextmanager
def thawed(bench):
    """Let a frozen lab run for the time of a block."""
    _all(bench, "cont")
    try:
        yield bench
    finally:
        freeze(bench)


def attempt(title, mode, bench, measure, *arguments):
    """What measure(bench, *arguments) returns of a frozen lab while it runs.

    What fails is said, and is None: other labs have their figures still.
    """
    try:
        with thawed(bench):
            return measure(bench, *arguments)
    except (AssertionError, UserError) as error:
        say(f"{title}: {mode} fails: {str(error).strip()}")
        return None
