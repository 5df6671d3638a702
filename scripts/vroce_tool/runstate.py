# SPDX-License-Identifier: GPL-2.0-or-later
"""The guests of a lab run together or stand still together.

A guest that stops alone, at a breakpoint or by a misuse rule, would cost the
others their connections: their clocks go on, and they run out of retries.  So
the lab's supervisor listens to each QEMU, on a monitor of its own, and does to
the others what happened to one.  It is the only one that stops and resumes
guests for `vroce stop` and `vroce cont`, too: two of them could undo each
other's work.
"""

import contextlib
import json
import select
import socket
import sys
import time

# QEMU answers in a few ms; a lab that is to end must not wait long for it.
ANSWER_SECONDS = 2
# Of QEMU's reasons to stop a guest, those that last until someone says `cont`.
# Migration and snapshots stop it, too, and go on by themselves.
LASTING = {"paused", "debug", "io-error", "watchdog", "internal-error",
           "guest-panicked"}


class Control:
    """A monitor of one QEMU, which has the other end of a socketpair."""

    def __init__(self, name):
        self.name = name
        self.running = True
        self.socket, self.far = socket.socketpair()
        self._serial = 0
        self._rest = b""
        # QEMU reads it when it has come so far.
        self.begin("qmp_capabilities")

    def fileno(self):
        return self.socket.fileno()

    def begin(self, command):
        """Send a command; answer() waits for what comes of it."""
        self._serial += 1
        self.socket.sendall(json.dumps(
            {"execute": command, "id": self._serial}).encode() + b"\n")

    def receive(self):
        """The messages that have come; raises OSError when QEMU is gone."""
        try:
            data = self.socket.recv(1 << 16, socket.MSG_DONTWAIT)
        except BlockingIOError:
            # Taken already, by a command that was sent in between.
            return []
        if not data:
            raise ConnectionError("QEMU is gone")
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [json.loads(line) for line in lines if line.strip()]

    def answer(self):
        """The answer to the last command; raises OSError when none comes.

        Events that come before the answer tell of nothing else than what the
        command did, or what it made undone.
        """
        deadline = time.monotonic() + ANSWER_SECONDS
        while True:
            wait = max(0, deadline - time.monotonic())
            if not select.select([self.socket], [], [], wait)[0]:
                raise TimeoutError("QEMU does not answer")
            for message in self.receive():
                if message.get("id") == self._serial:
                    return message

    def close(self):
        self.socket.close()


class RunState:
    """Whether a lab runs; note(stopped) is called when that has changed."""

    def __init__(self, note):
        self.stopped = False
        self.controls = {}
        self._note = note

    def add(self, name):
        """A control for a QEMU that is about to start."""
        self.controls[name] = Control(name)
        return self.controls[name]

    def remove(self, control):
        control.close()
        # It may have been started again.
        if self.controls.get(control.name) is control:
            del self.controls[control.name]

    def read(self, control):
        """Take in what a QEMU says; raises OSError when it is gone."""
        for message in control.receive():
            if message.get("event") == "STOP":
                control.running = False
                if not self.stopped and self._lasts(control):
                    self.set(True)
            elif message.get("event") == "RESUME":
                control.running = True
                if self.stopped:
                    self.set(False)

    @staticmethod
    def _lasts(control):
        control.begin("query-status")
        return control.answer().get("return", {}).get("status") in LASTING

    def set(self, stopped):
        """Stop or resume every guest that is not so yet."""
        self.stopped = stopped
        command = "stop" if stopped else "cont"
        changed = [control for control in self.controls.values()
                   if control.running == stopped]
        # All at once: the clock of the last one goes on for the shortest time.
        for control in changed:
            with contextlib.suppress(OSError):
                control.begin(command)
        for control in changed:
            try:
                answer = control.answer()
            except OSError as error:
                # If it is gone, its end is noticed elsewhere.
                answer = {"error": {"desc": str(error)}}
            if "error" in answer:
                print(f"{control.name}: {command}: {answer['error']['desc']}",
                      file=sys.stderr, flush=True)
            else:
                control.running = not stopped
        self._note(stopped)
