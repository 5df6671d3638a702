# SPDX-License-Identifier: GPL-2.0-or-later
"""The frame of the command line: sub-commands, exit statuses, interruption.

Exit statuses: 0 success, 1 failure (one message says what and what to do),
2 wrong usage, 130 interrupted.  Commands that run something in a guest return
that program's own status.
"""

import argparse
import signal
import sys

from . import (capture, demo, lab, monitor, pair, reload, setup, shell,
               testrun)
from .util import Interrupted, UserError, stop_children

# Each module lists its own sub-commands in COMMANDS (see util.Command).
MODULES = (setup, demo, testrun, lab, shell, pair, reload, capture, monitor)


def make_parser():
    parser = argparse.ArgumentParser(
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
    raise Interrupted(signum)


def main(argv=None):
    """Run the command in argv (default: sys.argv); return the exit status."""
    args = make_parser().parse_args(argv)
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
    except Interrupted:
        print("vroce: interrupted", file=sys.stderr)
        return 130
    finally:
        stop_children()
