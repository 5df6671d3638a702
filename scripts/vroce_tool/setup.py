# SPDX-License-Identifier: GPL-2.0-or-later
"""The command `vroce setup`: all that a lab needs, made when it is missing."""

from .util import Command


def add_arguments(parser):
    parser.add_argument("--yes", "-y", action="store_true",
                        help="install missing host packages without asking")
    parser.add_argument("--qemu-src", metavar="DIR",
                        help="build from this QEMU source tree instead of "
                        "Debian's source package")
    parser.add_argument("--dry-run", action="store_true",
                        help="say what would be done, and do nothing")


def run(args):
    raise NotImplementedError


COMMANDS = [
    Command("setup", "build or refresh all that a lab needs", add_arguments,
            run),
]
