# SPDX-License-Identifier: GPL-2.0-or-later
"""The command `vroce reload`: a changed driver or provider, without a reboot."""

import time
from concurrent.futures import ThreadPoolExecutor

from . import guestbuild, wire
from .guest import CARD, SCRIPTS
from .lab import Lab, add_lab
from .util import Command, UserError, elapsed, say, step


def reload_guest(guest):
    """Replace the driver of one guest; returns {"old", "new", "netdev"}."""
    result = guest.run(f"{SCRIPTS}/reload {wire.mac(guest.number)} "
                       f"{guest.ipv4}", check=False)
    if result.returncode:
        raise UserError(f"guest {guest.number}: "
                        f"{result.stderr.strip() or 'reload failed'}")
    return dict(word.split("=", 1) for word in result.stdout.split())


def add_arguments(parser):
    add_lab(parser)


def run(args):
    lab = Lab.load_awake(args.lab)
    guests = [guest for guest in lab.guests if guest.mode == CARD]
    if not guests:
        raise UserError(f"no guest of lab '{lab.name}' has the card")
    began = time.monotonic()
    with lab.watch() as watch:
        with step("building driver and provider"), \
                ThreadPoolExecutor(2) as pool:
            builds = [pool.submit(guestbuild.build_driver),
                      pool.submit(guestbuild.build_provider)]
            for build in builds:
                build.result()
        with step("reloading"), ThreadPoolExecutor(len(guests)) as pool:
            facts = list(pool.map(reload_guest, guests))
        if watch.check():
            raise UserError("a guest's kernel reports trouble, see above")
    for guest, fact in zip(guests, facts):
        same = " (unchanged)" if fact["old"] == fact["new"] else ""
        say(f"guest {guest.number}: driver build {fact['old']} -> {fact['new']}"
            f"{same}, {fact['netdev']} is {guest.ipv4}")
    say(f"reloaded in {elapsed(time.monotonic() - began)}")


COMMANDS = [
    Command("reload", "rebuild driver and provider, load them in the guests",
            add_arguments, run,
            "Build the driver and the provider from the checkout and load "
            "them in the running guests, without a reboot.  A driver that is "
            "in use is not replaced: the message says so."),
]
