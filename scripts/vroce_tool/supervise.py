# SPDX-License-Identifier: GPL-2.0-or-later
"""The process that owns a lab's QEMUs, started by `vroce up`.

It lives in a session of its own, holds the lab's lock for as long as anything
of the lab runs, and is the parent of every QEMU: when it ends, however it
ends, the kernel ends them (PR_SET_PDEATHSIG).  Until `up` writes a byte into
the pipe that it shares with this process, the end of `up` ends the lab too.

It keeps the guests' ends of the wire.  When a guest has ended, what the others
send to it is read and dropped here, as on a wire that nobody listens to.

Other commands ask by a file in the lab's folder and SIGUSR1: boot-NAME boots a
guest that has ended, lab-stop and lab-cont stop and resume all (see runstate.py).
"""

import contextlib
import ctypes
import json
import os
import selectors
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from . import wire
from .qmp import QMP
from .runstate import Control, RunState
from .util import UserError, write_atomic

GRACE_SECONDS = 3
CAPTURE_SECONDS = 0.2
# The processes that join the guests' ends of the wire.
MIDDLE = ("hub", "relay")
# How much to read at once of what is sent to a guest that has ended.
DRAIN_FRAMES = 256
MAX_FRAME = 1 << 17     # bytes; a longer one would only be cut
_PR_SET_PDEATHSIG = 1


def start_time(pid):
    """When a process started, in ticks since boot; None if there is none.

    Together with the pid it names one process for good.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The name in parentheses may hold spaces; field 22 counts from 1.
    return int(stat.rpartition(")")[2].split()[19])


class Supervisor:
    def __init__(self, folder, owner):
        self.folder = folder
        self.owner = owner
        self.spec = json.loads((folder / "lab.json").read_text())
        self.processes = {process["name"]: process
                          for process in self.spec["processes"]}
        self.capture = self.spec["capture"]
        self.children = {}
        self.state = {"supervisor": {"pid": os.getpid(),
                                     "start": start_time(os.getpid())}}
        self.selector = selectors.DefaultSelector()
        self.runstate = RunState(self._note_stopped)
        self.libc = ctypes.CDLL(None)

    def main(self):
        """Run the lab to its end.

        The folders stay when the guests, or a failure, ended it: someone may
        want to know why.
        """
        self._catch_signals()
        self.selector.register(self.owner, selectors.EVENT_READ, "owner")
        try:
            self._start()
            told = self._watch()
        finally:
            self._stop()
        if told:
            for path in (self.spec["logs"], self.folder):
                shutil.rmtree(path, ignore_errors=True)

    def _catch_signals(self):
        reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(writer)
        for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP,
                       signal.SIGUSR1):
            signal.signal(signum, lambda *_: None)
        self.selector.register(reader, selectors.EVENT_READ, "signal")

    def _start(self):
        for numbers in self.spec["pairs"]:
            for number, end in zip(numbers, wire.make_pair()):
                # A fresh process has few descriptors: the low range is free.
                os.dup2(end.fileno(), number)
                end.close()
        for process in self.processes.values():
            self._spawn(process)
        for process in self.processes.values():
            if process["name"] in MIDDLE:
                for number in process["fds"]:
                    os.close(number)
        self._save()

    def _spawn(self, process):
        parent = os.getpid()

        def die_with_parent():
            self.libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:
                os._exit(1)

        fds = list(process["fds"])
        if process["name"] not in MIDDLE:
            control = self.runstate.add(process["name"])
            self.selector.register(control, selectors.EVENT_READ, control)
            os.dup2(control.far.fileno(), wire.CONTROL_FD)
            control.far.close()
            fds.append(wire.CONTROL_FD)
        with open(process["log"], "ab") as log:
            child = subprocess.Popen(
                process["argv"], pass_fds=fds, stdin=subprocess.DEVNULL,
                stdout=log, stderr=log, preexec_fn=die_with_parent)
        if wire.CONTROL_FD in fds:
            os.close(wire.CONTROL_FD)
        self.children[process["name"]] = child
        self.state[process["name"]] = {"pid": child.pid,
                                       "start": start_time(child.pid)}
        self.selector.register(os.pidfd_open(child.pid), selectors.EVENT_READ,
                               process["name"])

    def _watch(self):
        """Until no guest is left; returns whether it was told to stop."""
        while True:
            period = CAPTURE_SECONDS if self.capture else None
            for key, _events in self.selector.select(period):
                if key.data == "signal":
                    if set(os.read(key.fd, 64)) != {signal.SIGUSR1}:
                        return True
                    self._boot()
                    self._stop_or_resume()
                    continue
                if isinstance(key.data, Control):
                    self._read_control(key.data)
                    continue
                if key.data == "drain":
                    self._drain(key.fd)
                    continue
                if key.data == "owner":
                    if not os.read(self.owner, 1):
                        return True
                    self.selector.unregister(self.owner)
                    os.close(self.owner)
                    continue
                self.selector.unregister(key.fd)
                os.close(key.fd)
                self.state[key.data]["exit"] = self.children[key.data].wait()
                self._save()
                if key.data not in MIDDLE:
                    for fd in self.processes[key.data]["fds"]:
                        self.selector.register(fd, selectors.EVENT_READ,
                                               "drain")
            if all("exit" in self.state[name] for name in self.children
                   if name not in MIDDLE):
                return False
            self._limit_capture()

    def _read_control(self, control):
        try:
            self.runstate.read(control)
        except OSError:
            # Its process is about to end, or it closed all its descriptors.
            self.selector.unregister(control)
            self.runstate.remove(control)

    def _stop_or_resume(self):
        for word, stopped in (("stop", True), ("cont", False)):
            request = self.folder / f"lab-{word}"
            if request.exists():
                self.runstate.set(stopped)
                request.unlink()

    def _note_stopped(self, stopped):
        self.state["supervisor"]["stopped"] = stopped
        self._save()

    @staticmethod
    def _drain(fd):
        """Drop the frames that have come for a guest that has ended."""
        os.set_blocking(fd, False)
        with contextlib.suppress(BlockingIOError):
            for _ in range(DRAIN_FRAMES):
                os.read(fd, MAX_FRAME)

    def _boot(self):
        """Start again the guests that are asked for and have ended."""
        for name, process in self.processes.items():
            request = self.folder / f"boot-{name}"
            if not request.exists():
                continue
            if "exit" in self.state[name]:
                for fd in process["fds"]:
                    self.selector.unregister(fd)
                # If it is guest 1, its capture starts anew.
                self.capture = self.spec["capture"]
                self._spawn(process)
                self._save()
            request.unlink()

    def _limit_capture(self):
        """Stop the capture of the lab's first frames when it is full."""
        limit = self.capture
        path = Path(self.spec["logs"]) / "wire.pcap"
        with contextlib.suppress(OSError, UserError):
            if limit and path.stat().st_size > limit:
                self.capture = 0
                with QMP(self.folder / "1-qmp.sock") as qmp:
                    qmp.execute("qom-set", path="/objects/capture",
                                property="status", value="off")

    def _stop(self):
        for child in self.children.values():
            child.terminate()
        for child in self.children.values():
            try:
                child.wait(GRACE_SECONDS)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()

    def _save(self):
        # The folder may be gone when someone deleted it by hand.
        with contextlib.suppress(OSError):
            write_atomic(self.folder / "state.json", json.dumps(self.state))


def main():
    folder, owner, _lock = sys.argv[1:]
    Supervisor(Path(folder), int(owner)).main()


if __name__ == "__main__":
    main()
