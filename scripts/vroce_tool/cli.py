# SPDX-License-Identifier: GPL-2.0-or-later
"""The frame of the command line: sub-commands, exit statuses, interruption.

Exit statuses: 0 success, 1 failure (one message says what and what to do),
2 wrong usage, 130 interrupted.  Commands that run something in a guest return
that program's own status.
"""

import argparse
import errno
import signal
import sys
import time

from . import (bench, capture, demo, impair, inspect, lab, monitor, pair,
               reload, setup, shell, stopcont, testrun, why)
from .util import Interrupted, UserError, cache_dir, stop_children

# Each module lists its own sub-commands in COMMANDS (see util.Command).
MODULES = (setup, demo, testrun, lab, shell, pair, reload, capture, monitor,
           impair, stopcont, inspect, why, bench)

# Signals that come within this time of another are one request to stop.
REPEAT_SECONDS = 1
_interrupted_at = None

# What the user can do something about, wherever it comes up.
OF_THE_MACHINE = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES,
                  errno.EPERM}


class _Parser(argparse.ArgumentParser):
    """Says what is wrong first, and of the command that it is wrong with."""

    def error(self, message):
        self.exit(2, f"{self.prog}: {message}\n{self.format_usage()}")

    def parse_known_args(self, args=None, namespace=None):
        # What a command does not know, nobody knows.
        namespace, extras = super().parse_known_args(args, namespace)
        if extras:
            self.error(f"unrecognized arguments: {' '.join(extras)}")
        return namespace, extras


def make_parser():
    parser = _Parser(
        prog="vroce", description="Guests that exchange RDMA over an RDMA "
        "network card that exists only in software.",
        epilog="'vroce COMMAND --help' tells more about a command.")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for module in MODULES:
        for command in module.COMMANDS:
            sub = commands.add_parser(command.name, help=command.help,
                                      description=command.description or
                                      command.help)
            command.add_arguments(sub)
            sub.set_defaults(run=command.run)
    return parser


def _raise_interrupted(signum, _frame):
    # timeout(1) and terminals deliver the same request more than once: the
    # repetition must not break off the clean-up that the first one began.
    global _interrupted_at
    now = time.monotonic()
    if _interrupted_at is None or now - _interrupted_at > REPEAT_SECONDS:
        _interrupted_at = now
        raise Interrupted(signum)


def main(argv=None):
    """Run the command in argv (default: sys.argv); return the exit status."""
    args = make_parser().parse_args(argv)
    args.argv = sys.argv[1:] if argv is None else argv
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, _raise_interrupted)
    try:
        return args.run(args) or 0
    except UserError as error:
        print(f"vroce: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        # The reader of our output is gone: nothing more to say to it.
        sys.stdout = None
        return 1
    except OSError as error:
        if error.errno not in OF_THE_MACHINE:
            raise
        where = f"{error.filename}: " if error.filename else ""
        print(f"vroce: {where}{error.strerror}; the cache is {cache_dir()}, "
              "VROCE_CACHE names another folder", file=sys.stderr)
        return 1
    except Interrupted:
        print("vroce: interrupted", file=sys.stderr)
        return 130
    finally:
        stop_children()
