# SPDX-License-Identifier: GPL-2.0-or-later
"""The commands `vroce stop` and `vroce cont`: all guests of a lab at once."""

import os
import signal
import time

from .lab import Lab, add_lab
from .util import Command, UserError, say

ANSWER_SECONDS = 20


def change(lab, word):
    """Stop (word: stop) or resume (cont) the guests of a running lab."""
    request = lab.folder / f"lab-{word}"
    request.touch()
    os.kill(lab.state["supervisor"]["pid"], signal.SIGUSR1)
    deadline = time.monotonic() + ANSWER_SECONDS
    while request.exists():
        if not lab.running():
            raise UserError(f"lab '{lab.name}' ended")
        if time.monotonic() > deadline:
            raise UserError(f"the supervisor of lab '{lab.name}' does not "
                            f"answer: see {lab.logs}/supervisor.log")
        time.sleep(0.02)
    for guest in lab.guests:
        if lab.process(guest):
            _check(lab, guest, word)


def _check(lab, guest, word):
    with guest.qmp() as qmp:
        status = qmp.execute("query-status")
    if status["running"] != (word == "cont"):
        raise UserError(f"guest {guest.number} is {status['status']} after "
                        f"'{word}': see {lab.logs}/supervisor.log")


def run(word, done):
    def run_it(args):
        lab = Lab.load(args.lab)
        change(lab, word)
        say(f"lab '{lab.name}' {done.format(lab=lab.option)}")
    return run_it


COMMANDS = [
    Command("stop", "stop all guests of a lab together", add_lab,
            run("stop", "stands still: 'vroce cont{lab}' goes on"),
            "Stop all guests, and with them their clocks: no connection "
            "between them runs out of retries.  A guest that is stopped by a "
            "debugger or by a misuse rule stops its lab, too."),
    Command("cont", "resume all guests of a lab", add_lab,
            run("cont", "goes on"),
            "Resume all guests, whatever stopped them."),
]
