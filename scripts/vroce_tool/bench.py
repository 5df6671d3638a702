# SPDX-License-Identifier: GPL-2.0-or-later
"""The command `vroce bench`: how fast what there is runs.

Each benchmark is a module with a NAME, a HELP, and a run(options) that prints
its table and returns its results as data.  Figures of one machine are
compared only with each other: each benchmark measures side by side what it
compares.
"""

import json

from . import (benchengine, benchidle, benchnetdevs, benchplot, benchrdma,
               benchwakeups, impairtable)
from .lab import between
from .util import Command, UserError, output_file, write_atomic

BENCHES = {module.NAME: module for module in (
    benchrdma, benchengine.Engine, benchengine.Wire, benchwakeups, benchidle,
    benchnetdevs, impairtable)}


def add_arguments(parser):
    parser.add_argument("name", metavar="NAME", nargs="?",
                        default=benchrdma.NAME,
                        help=f"one of {', '.join(BENCHES)} (default: "
                        f"{benchrdma.NAME})")
    parser.add_argument("--list", action="store_true",
                        help="say what each of them measures, run none")
    parser.add_argument("--json", metavar="FILE", type=output_file,
                        help="write the results as data")
    parser.add_argument("--plot", metavar="FILE", type=output_file,
                        help="draw the results, as .svg or .png "
                        f"({benchrdma.NAME} only)")
    parser.add_argument("--quick", action="store_true",
                        help="few and short measurements: shows that it "
                        "works, not how fast")
    parser.add_argument("--runs", metavar="N", type=between(1, 100, "runs"),
                        help="how often each figure is measured; the best "
                        "counts")
    parser.add_argument("--compare", metavar="PERCENT", nargs="?", type=float,
                        const=benchengine.TOLERANCE_PERCENT,
                        help="say what differs from the reference in the "
                        "repository by more than PERCENT (default: "
                        f"{benchengine.TOLERANCE_PERCENT}), and fail if it "
                        f"got worse ({benchengine.Engine.NAME}, "
                        f"{benchengine.Wire.NAME})")
    parser.add_argument("--save", action="store_true",
                        help="make the results the reference in the "
                        f"repository ({benchengine.Engine.NAME}, "
                        f"{benchengine.Wire.NAME})")
    parser.add_argument("--yes", "-y", action="store_true",
                        help="install missing host packages without asking")


def check(args):
    """Refuse what does not go together before anything is started."""
    if args.name not in BENCHES:
        raise UserError(f"there is no benchmark '{args.name}'; there are "
                        f"{', '.join(BENCHES)}")
    if args.plot:
        if args.name != benchrdma.NAME:
            raise UserError(f"there is no drawing of '{args.name}': --plot "
                            f"goes with '{benchrdma.NAME}'")
        benchplot.check(args.plot, args.yes)
    if (args.save or args.compare is not None) and \
            not hasattr(BENCHES[args.name], "compare"):
        raise UserError(f"there is no reference for '{args.name}': --compare "
                        f"and --save go with '{benchengine.Engine.NAME}' and "
                        f"'{benchengine.Wire.NAME}'")
    if args.save and args.quick:
        raise UserError("--save: what --quick measures is no reference")
    if args.compare is not None and args.compare < 0:
        raise UserError("--compare: a percentage is not negative")


def run(args):
    if args.list:
        for name, module in BENCHES.items():
            print(f"{name}: {module.HELP}")
        return 0
    check(args)
    module = BENCHES[args.name]
    data = module.run(args)
    if args.json:
        write_atomic(args.json.absolute(), json.dumps(data, indent=2) + "\n")
    if args.plot:
        benchplot.draw(data, args.plot)
    if args.save:
        benchengine.save(args.name, data)
    if args.compare is not None:
        return module.compare(data, args.compare)
    # Of those that go on when a program fails.
    failed = module.failures(data) if hasattr(module, "failures") else []
    if failed:
        raise UserError("the card failed in " + ", ".join(failed)
                        + "; its message is above")
    return 0


COMMANDS = [
    Command("bench", "how fast the card is, beside soft-RoCE", add_arguments,
            run, "Measure, print a table of the results, and write or draw "
            "them.  A busy machine measures its load: let nothing else run."),
]
