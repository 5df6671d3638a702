# SPDX-License-Identifier: GPL-2.0-or-later
"""Reads test results in TAP and in the kernel's dialect of it, KTAP."""

import re
from typing import NamedTuple

PLAN = re.compile(r"1\.\.(\d+)")
RESULT = re.compile(r"(not )?ok\b\s*(\d+)?\s*(?:- )?([^#]*)(?:#\s*(.*))?")

PASS, FAIL, SKIP = "pass", "fail", "skip"


class Outcome(NamedTuple):
    name: str
    status: str         # PASS, FAIL or SKIP
    output: str         # what was printed since the result before


def parse(text, program, status):
    """The outcomes in a test program's output.

    status is the program's exit status.  A program that does not keep to its
    plan, or fails without saying which test failed, has one more outcome: a
    failure with the program's name.
    """
    outcomes, planned, lines = [], None, []
    for line in text.splitlines():
        plan, result = PLAN.match(line), RESULT.match(line)
        if plan:
            # "1..0 # SKIP why" skips the program as a whole.
            planned = int(plan[1])
            if planned == 0:
                outcomes.append(Outcome(program, SKIP, line))
                planned = 1
        elif result:
            outcomes.append(_outcome(result, program, "\n".join(lines)))
            lines = []
        else:
            lines.append(line)
    failed = any(outcome.status == FAIL for outcome in outcomes)
    problem = None
    if planned is None:
        problem = "it printed no plan"
    elif len(outcomes) != planned:
        problem = f"{len(outcomes)} of {planned} planned tests have a result"
    elif status not in (0, 4) and not failed:
        problem = "no test failed"
    if problem:
        outcomes.append(Outcome(program, FAIL,
                                f"exit status {status}: {problem}\n"
                                + "\n".join(lines)))
    return outcomes


def _outcome(match, program, output):
    name = f"{program}: {match[3].strip()}" if match[3].strip() else \
        f"{program} {match[2]}"
    directive = (match[4] or "").strip()
    status = FAIL if match[1] else PASS
    if directive.upper().startswith("SKIP"):
        status, output = SKIP, directive
    return Outcome(name, status, output)
