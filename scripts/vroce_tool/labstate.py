# SPDX-License-Identifier: GPL-2.0-or-later
"""What the supervisor of a lab has noted in the lab's folder."""

import json

from .util import UserError, lab_option


def read_state(folder):
    """Per process: pid, start (see start_time) and, if it ended, exit."""
    try:
        return json.loads((folder / "state.json").read_text())
    except (OSError, ValueError):
        return {}


def stopped(folder):
    """Whether the lab's guests stand still (see runstate.py)."""
    return read_state(folder).get("supervisor", {}).get("stopped", False)


def stands_still(folder):
    """What to tell whoever waits for a guest; None when they run."""
    if not stopped(folder):
        return None
    return (f"lab '{folder.name}' stands still: 'vroce cont"
            f"{lab_option(folder.name)}' goes on")


def refuse_if_stopped(folder):
    """Raise UserError, rather than wait for a guest that stands still."""
    if text := stands_still(folder):
        raise UserError(text)
