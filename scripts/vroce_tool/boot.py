# SPDX-License-Identifier: GPL-2.0-or-later
"""Waiting for guests that boot, and booting one again."""

import os
import signal
import time
from pathlib import Path

from .oops import ConsoleWatch, console_tail
from .supervise import MIDDLE
from .util import UserError, step

END_SECONDS = 10


def await_ready(lab, guests, timeout, progress, supervisor=None):
    """Wait until these guests of a lab are ready, and note it in the lab.

    supervisor: the lab's, when it is a child of this process.  Raises
    UserError, with what the guest said last, for one that does not make it.
    """
    deadline = time.monotonic() + timeout
    waiting = {guest.number: guest for guest in guests}
    with ConsoleWatch(guests, from_start=True) as watch:
        while waiting:
            _check_processes(lab, waiting.values(), supervisor)
            for guest in list(waiting.values()):
                if _is_ready(guest):
                    del waiting[guest.number]
            progress.detail = f"({len(guests) - len(waiting)} ready)"
            for number, line in watch.reports:
                if "Kernel panic" in line:
                    raise UserError(f"guest {number} panicked: {line}")
            if waiting and time.monotonic() > deadline:
                watch.check()
                _too_late(min(waiting.items())[1], timeout)
            time.sleep(0.1)
    for guest in guests:
        lab.spec["ssh_ports"][guest.number - 1] = guest.find_ssh_port()
    lab.spec["ready"] = time.time()
    lab.save()


def _check_processes(lab, guests, supervisor):
    state = lab.state
    for name in [*MIDDLE, *(guest.name for guest in guests)]:
        if "exit" in state.get(name, {}):
            raise UserError(_why_ended(lab, name, state[name]["exit"]))
    if supervisor.poll() is not None if supervisor else not lab.running():
        log = (lab.logs / "supervisor.log").read_text().strip()
        raise UserError("the lab's supervisor ended: "
                        + (log.splitlines() or ["(no message)"])[-1])


def _why_ended(lab, name, status):
    log, = (Path(process["log"]) for process in lab.spec["processes"]
            if process["name"] == name)
    lines = log.read_text(errors="replace").strip().splitlines()
    text = "\n".join(f"  | {line}" for line in lines[-10:])
    what = "the relay" if name == "relay" else f"QEMU of {name}"
    message = f"{what} ended (exit status {status})"
    if text:
        message += f":\n{text}"
    if lab.spec["accel"] == "kvm" and "kvm" in text.lower():
        message += "\nKVM does not work here: --accel tcg does without"
    if name not in MIDDLE and not text:
        number = int(name.removeprefix("guest"))
        message += "; its console:\n" + console_tail(lab.guest(number))
    return message


def _is_ready(guest):
    try:
        lines = guest.log("ready").read_text(errors="replace").splitlines()
    except FileNotFoundError:
        return False
    for line in lines:
        if line.startswith("failed"):
            raise UserError(f"guest {guest.number} booted but is not ready: "
                            f"{line.partition(':')[2].strip()}\nits "
                            f"console:\n{console_tail(guest)}")
    return "ready" in lines


def _too_late(guest, timeout):
    raise UserError(
        f"guest {guest.number} is not ready after {timeout} s (--timeout "
        "allows more); the end of its console:\n" + console_tail(guest))


def kill(lab, guest):
    """End a guest's QEMU at once, as a machine that loses its power."""
    pid = lab.process(guest)
    if pid:
        os.kill(pid, signal.SIGKILL)
        deadline = time.monotonic() + END_SECONDS
        while "exit" not in lab.state[guest.name]:
            if time.monotonic() > deadline:
                raise UserError(f"QEMU of guest {guest.number} (process {pid}) "
                                "cannot be killed")
            time.sleep(0.05)


def boot(lab, guest, timeout):
    """Boot a guest that has ended once more, on the wire where it was."""
    if lab.process(guest):
        raise UserError(f"guest {guest.number} runs; 'vroce boot --kill"
                        f"{lab.option} {guest.number}' ends it first")
    # What the last one left is not what this one says.
    for path in (guest.log("ready"), guest.log("console"), guest.log("qemu"),
                 guest.path("ssh")):
        path.unlink(missing_ok=True)
    request = lab.folder / f"boot-{guest.name}"
    request.touch()
    os.kill(lab.state["supervisor"]["pid"], signal.SIGUSR1)
    while request.exists():
        if not lab.running():
            raise UserError(f"lab '{lab.name}' ended")
        time.sleep(0.02)
    with step(f"booting guest {guest.number}") as progress:
        await_ready(lab, [guest], timeout, progress)
