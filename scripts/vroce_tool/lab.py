# SPDX-License-Identifier: GPL-2.0-or-later
"""Labs: guests on one wire.  The commands `up`, `boot`, `status` and `down`.

A lab has a runtime folder with its sockets, description and lock, and a
folder in the cache for its logs and capture, which may grow large.  The lock
is held by the lab's supervisor (see supervise.py): a lab runs as long as its
lock is held, whatever files a crash left.
"""

import argparse
import contextlib
import fcntl
import json
import os
import re
import shlex
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

from . import relay, setup, wire
from .boot import await_ready, boot, kill
from .guest import CARD, RXE, Guest, choose_accel
from .labstate import read_state, refuse_if_stopped, stopped
from .oops import ConsoleWatch
from .supervise import start_time
from .util import (DEFAULT_LAB, Command, UserError, cache_dir, elapsed,
                   lab_option, remove_tree, say, step, write_atomic)

NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,30}")
# A Unix socket's path has at most 107 bytes, and ssh adds a suffix of 17.
MAX_FOLDER = 107 - 17 - len("/32-monitor.sock")
STOP_SECONDS = 10


# ------------------------------------------------------------------ folders

def runtime_dir():
    """Where the folders of the running labs are; private to this user."""
    base = os.environ.get("XDG_RUNTIME_DIR")
    path = Path(base) / "vroce" if base else Path(f"/tmp/vroce-{os.getuid()}")
    try:
        path.mkdir(mode=0o700, exist_ok=True)
        info = path.lstat()
    except OSError as error:
        raise UserError(f"cannot use {path} for running labs: "
                        f"{error.strerror}; set XDG_RUNTIME_DIR to a folder "
                        "of your own") from None
    if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.getuid():
        raise UserError(f"{path} is not a folder of yours; set XDG_RUNTIME_DIR "
                        "to a folder of your own")
    return path


def lab_name(text):
    """An argparse type: a lab's name, which becomes a folder's name."""
    if not NAME.fullmatch(text):
        raise argparse.ArgumentTypeError(
            f"'{text}' is no name for a lab: use a-z, 0-9, - and _, at most "
            "31 characters, a letter or digit first")
    return text


def add_lab(parser):
    parser.add_argument("--lab", metavar="NAME", type=lab_name,
                        default=DEFAULT_LAB,
                        help=f"which lab (default: {DEFAULT_LAB})")


def add_guest(parser):
    parser.add_argument("guest", metavar="G", type=int,
                        help="which guest, counted from 1")


class Lab:
    """A lab that was started; state says what its supervisor wrote last."""

    def __init__(self, name):
        self.name = name
        self.folder = runtime_dir() / name
        self.logs = cache_dir() / "labs" / name
        # Of the last one that did not come up; no lab has a dot in its name.
        self.failed_logs = self.logs.with_name(f"{name}.failed")
        self.spec = {}

    @classmethod
    def find(cls, name):
        """The lab of that name, running or ended; raises UserError."""
        lab = cls(name)
        if not lab.exists():
            others = ", ".join(f"--lab {other.name}" for other in Lab.all()
                               if other.running())
            hint = f" (running: {others})" if others else ""
            raise UserError(f"no lab '{name}' is running{hint}; start it with "
                            f"'vroce up 2{lab.option}'")
        lab.read()
        return lab

    @classmethod
    def load(cls, name):
        """The running lab of that name; raises UserError when it is not."""
        lab = cls.find(name)
        if not lab.running():
            raise UserError(f"lab '{name}' has ended: see 'vroce logs"
                            f"{lab.option}', clear it away with 'vroce down"
                            f"{lab.option}'")
        return lab

    @classmethod
    def load_awake(cls, name):
        """The running lab of that name; raises UserError when it is not, or
        when its guests stand still and would never answer."""
        lab = cls.load(name)
        refuse_if_stopped(lab.folder)
        return lab

    @classmethod
    def all(cls):
        """Every lab that has a folder, running or not."""
        return [cls(path.name) for path in sorted(runtime_dir().iterdir())
                if path.is_dir() and (path / "lock").exists()]

    @property
    def option(self):
        """What a command that is suggested needs in order to mean this lab."""
        return lab_option(self.name)

    def exists(self):
        return (self.folder / "lock").exists()

    def read(self):
        try:
            self.spec = json.loads((self.folder / "lab.json").read_text())
        except (OSError, ValueError):
            self.spec = {}

    def running(self):
        """Whether its supervisor lives."""
        try:
            with open(self.folder / "lock") as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            pass
        return False

    @property
    def state(self):
        """Per process: pid, start (see start_time) and, if it ended, exit."""
        return read_state(self.folder)

    def process(self, guest):
        """The process of a guest's QEMU; None when it has ended."""
        process = self.state.get(guest.name, {})
        pid = process.get("pid")
        if "exit" in process or not pid or start_time(pid) != process["start"]:
            return None
        return pid

    @property
    def guests(self):
        return [Guest(number, mode, self.folder, self.logs, port,
                      self.spec.get("ssh"))
                for number, (mode, port) in enumerate(
                    zip(self.spec.get("modes", []),
                        self.spec.get("ssh_ports", [])), 1)]

    def guest(self, number):
        guests = self.guests
        if not 1 <= number <= len(guests):
            raise UserError(f"lab '{self.name}' has no guest {number}: it has "
                            f"guests 1 to {len(guests)}")
        return guests[number - 1]

    def save(self):
        write_atomic(self.folder / "lab.json", json.dumps(self.spec, indent=1))

    def watch(self):
        """A ConsoleWatch over all guests, for the time of one command."""
        return ConsoleWatch(self.guests)

    def stop(self):
        """End the lab and remove its folders; safe in any state."""
        supervisor = self.state.get("supervisor", {})
        pid = supervisor.get("pid")
        if self.running() and pid and start_time(pid) == supervisor["start"]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
            deadline = time.monotonic() + STOP_SECONDS
            while self.running():
                if time.monotonic() > deadline:
                    # Its QEMUs die with it.
                    os.kill(pid, signal.SIGKILL)
                    break
                time.sleep(0.05)
        self.remove()

    def remove(self):
        remove_tree(self.folder)
        remove_tree(self.logs)
        remove_tree(self.failed_logs)


# ----------------------------------------------------------------------- up

class Starter:
    """Starts one lab; whatever goes wrong, nothing of it runs on."""

    def __init__(self, options, artifacts):
        self.options = options
        self.artifacts = artifacts
        self.lab = Lab(options.lab)
        rxe = set(options.rxe or [])
        self.modes = [RXE if number in rxe else CARD
                      for number in range(1, options.count + 1)]
        self.wire = wire.plan(options.count, options.impair is not None)

    def spec(self):
        """What the supervisor runs."""
        processes = []
        control = str(self.lab.folder / "relay.sock")
        if self.wire.relay_fds:
            processes.append({
                "name": "relay", "fds": self.wire.relay_fds,
                "log": str(self.lab.logs / "relay.log"),
                "argv": relay.command(self.wire.relay_fds, control,
                                      self.options.impair)})
        if self.wire.hub:
            processes.append({
                "name": "hub", "fds": self.wire.hub_fds,
                "log": str(self.lab.logs / "hub-qemu.log"),
                "argv": [str(self.artifacts.qemu), "-name",
                         f"vroce-{self.lab.name}-hub", "-nodefaults",
                         "-no-user-config", "-display", "none", "-machine",
                         "none", *self.wire.hub]})
        for number, mode in enumerate(self.modes, 1):
            guest = Guest(number, mode, self.lab.folder, self.lab.logs)
            processes.append({
                "name": guest.name, "fds": self.wire.fds[number - 1],
                "log": str(guest.log("qemu")),
                "argv": guest.qemu_command(
                    self.options, self.artifacts,
                    self.wire.netdevs[number - 1])})
        return {"name": self.lab.name, "logs": str(self.lab.logs),
                "modes": self.modes, "accel": self.options.accel,
                "memory": self.options.memory, "cpus": self.options.cpus,
                "ssh": str(self.artifacts.ssh),
                "ssh_ports": [None] * len(self.modes),
                "began": time.time(), "pairs": self.wire.pairs,
                "relay": control if self.wire.relay_fds else None,
                "capture": self.options.capture << 20,
                "processes": processes}

    def dry_run(self):
        spec = self.spec()
        print(f"# folders: {self.lab.folder} {self.lab.logs}")
        for near, far in spec["pairs"]:
            print(f"# socketpair(AF_UNIX, SOCK_DGRAM): descriptors {near} and "
                  f"{far}, {wire.SOCKET_BYTES} bytes of buffer")
        for process in spec["processes"]:
            print(shlex.join(process["argv"]))

    def start(self, keep_logs=False):
        """Boot and wait until every guest is ready; returns the Lab.

        keep_logs: of a lab that fails, too; the UserError says where.
        """
        if self.wire.relay_fds:
            relay.build()
        lock = self._claim()
        reader, owner = os.pipe2(os.O_CLOEXEC)
        supervisor = None
        try:
            self.lab.spec = self.spec()
            self.lab.save()
            supervisor = self._spawn(reader, lock)
            os.close(reader)
            reader = None
            with step(f"booting {len(self.modes)} guest"
                      f"{'s' * (len(self.modes) > 1)} "
                      f"({self.options.accel})") as progress:
                await_ready(self.lab, self.lab.guests, self.options.timeout,
                            progress, supervisor)
            os.write(owner, b"k")
            return self.lab
        except UserError as error:
            if not keep_logs:
                self._clear(supervisor)
                raise
            # The supervisor would delete them.
            self.lab.logs.rename(self.lab.failed_logs)
            self._clear(supervisor)
            raise UserError(f"{error}\nthe logs are in "
                            f"{self.lab.failed_logs}") from None
        except BaseException:
            self._clear(supervisor)
            raise
        finally:
            for fd in (reader, owner, lock):
                if fd is not None:
                    os.close(fd)

    def _clear(self, supervisor):
        if supervisor:
            with contextlib.suppress(ProcessLookupError):
                supervisor.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                supervisor.wait(STOP_SECONDS)
            if supervisor.poll() is None:
                supervisor.kill()
        remove_tree(self.lab.folder)
        remove_tree(self.lab.logs)

    def _claim(self):
        """Make the lab's folders and take its lock; returns the lock's fd."""
        lab = self.lab
        if len(os.fsencode(lab.folder)) > MAX_FOLDER:
            raise UserError(f"{lab.folder} is too long for the name of a Unix "
                            "socket: use a shorter --lab or XDG_RUNTIME_DIR")
        with open(runtime_dir() / ".lock", "w") as serial:
            fcntl.flock(serial, fcntl.LOCK_EX)
            if lab.running():
                raise UserError(
                    f"lab '{lab.name}' is already running: stop it with "
                    f"'vroce down{lab.option}', or start another one "
                    "with --lab NAME")
            if lab.exists():
                say(f"clearing away what is left of lab '{lab.name}'")
            lab.remove()
            lab.folder.mkdir(mode=0o700)
            lab.logs.mkdir(parents=True)
            lock = os.open(lab.folder / "lock",
                           os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(lock, fcntl.LOCK_EX)
            return lock

    def _spawn(self, reader, lock):
        package = Path(__file__).resolve().parents[1]
        with open(self.lab.logs / "supervisor.log", "wb") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "vroce_tool.supervise",
                 str(self.lab.folder), str(reader), str(lock)],
                cwd="/", env={**os.environ, "PYTHONPATH": str(package)},
                pass_fds=(reader, lock), start_new_session=True,
                stdin=subprocess.DEVNULL, stdout=log, stderr=log)


def megabytes(text):
    """An argparse type: an amount of memory in MiB, as 1024, 1024M or 2G."""
    match = re.fullmatch(r"(\d+)([MG]?)i?B?", text, re.IGNORECASE)
    if not match:
        raise argparse.ArgumentTypeError(
            f"'{text}' is no amount of memory; write 1024M or 2G")
    value = int(match[1]) * (1024 if match[2].upper() == "G" else 1)
    if not 384 <= value <= 1 << 20:
        raise argparse.ArgumentTypeError(
            f"{text} is outside 384M to 1024G for one guest")
    return value


def between(low, high, what):
    """An argparse type: a whole number within limits."""
    def parse(text):
        try:
            value = int(text)
        except ValueError:
            value = None
        if value is None or not low <= value <= high:
            raise argparse.ArgumentTypeError(
                f"'{text}' is not a number of {what} from {low} to {high}")
        return value
    return parse


def add_up(parser):
    parser.add_argument("count", metavar="N",
                        type=between(1, wire.MAX_GUESTS, "guests"),
                        help="how many guests")
    add_lab(parser)
    parser.add_argument("--accel", choices=("auto", "tcg", "kvm"),
                        default="auto", help="how to run the guests' code "
                        "(auto: kvm where it really works)")
    parser.add_argument("--memory", metavar="M", type=megabytes, default=1024,
                        help="memory of each guest, as 1024M or 2G")
    parser.add_argument("--cpus", metavar="C", default=2,
                        type=between(1, 64, "processors"),
                        help="processors of each guest (default: 2)")
    parser.add_argument("--rxe", metavar="K", type=int, action="append",
                        help="guest K is a stock soft-RoCE peer: a virtio "
                        "NIC on the same wire instead of the card")
    parser.add_argument("--iommu", action="store_true",
                        help="put the guests' devices behind a virtual IOMMU "
                        "(Intel's, strict)")
    parser.add_argument("--card", metavar="PROPERTY=VALUE", action="append",
                        help="a property of the card ('-device vroce,help' "
                        "of QEMU lists them)")
    parser.add_argument("--impair", metavar="SPEC", type=relay.argument,
                        help="put a relay into the wire of two guests that "
                        "loses, duplicates, reorders, delays and corrupts "
                        "frames, as 'loss=1%%,delay=1ms', or 'off' for now "
                        "(see 'vroce impair')")
    parser.add_argument("--append", metavar="WORD", action="append",
                        help="add to the guests' kernel command line")
    parser.add_argument("--trace", metavar="PATTERN", action="append",
                        help="trace points of QEMU to log, as 'vroce_*'")
    parser.add_argument("--qemu-arg", metavar="WORD", action="append",
                        help="add to the guests' QEMU command line; write "
                        "--qemu-arg=-device --qemu-arg=edu")
    parser.add_argument("--capture", metavar="MIB", default=64,
                        type=between(0, 1 << 20, "MiB"),
                        help="how much of the wire to capture from the start "
                        "(default: 64 MiB; 0: nothing; see 'vroce pcap')")
    add_timeout(parser)
    parser.add_argument("--dry-run", action="store_true",
                        help="print the commands that would run, start none")


def add_timeout(parser):
    parser.add_argument("--timeout", metavar="SECONDS", default=180,
                        type=between(1, 86400, "seconds"),
                        help="how long the guests may take to boot")


def check_up(options):
    """Refuse combinations that the single options allow."""
    for number in options.rxe or []:
        if not 1 <= number <= options.count:
            raise UserError(f"--rxe {number}: there is no guest {number} among "
                            f"{options.count}")
    if options.impair is not None and options.count != 2:
        raise UserError(f"--impair: the relay joins two guests, not "
                        f"{options.count}; use 'vroce up 2"
                        f"{lab_option(options.lab)}'")
    for word in options.card or []:
        if not re.fullmatch(r"[a-z][a-z0-9-]*=[^,]+", word):
            raise UserError(f"--card {word}: write PROPERTY=VALUE, once for "
                            "each property")
    options.accel = choose_accel(options.accel)


def require_memory(options):
    """Refuse guests that together have more memory than this machine."""
    amounts = dict(re.findall(r"(\w+): +(\d+) kB",
                              Path("/proc/meminfo").read_text()))
    there = (int(amounts["MemTotal"]) + int(amounts["SwapTotal"])) >> 10
    if options.count * options.memory > there:
        raise UserError(f"{options.count} guest"
                        f"{'s' * (options.count > 1)} of {options.memory} MiB "
                        f"each do not fit into this machine's {there} MiB, "
                        "swap included: use a smaller --memory")


def up_options(count, **changes):
    """The options of `vroce up COUNT`, with changes, for other commands."""
    parser = argparse.ArgumentParser()
    add_up(parser)
    options = parser.parse_args([str(count)], argparse.Namespace())
    vars(options).update(changes)
    check_up(options)
    return options


def run_up(options):
    check_up(options)
    if options.dry_run:
        Starter(options, setup.planned()).dry_run()
        return
    require_memory(options)
    lab = Lab(options.lab)
    if lab.running():
        # Say so before a set-up that may take minutes.
        raise UserError(f"lab '{lab.name}' is already running: stop it with "
                        f"'vroce down{lab.option}', or start another one with "
                        "--lab NAME")
    lab = Starter(options, setup.ensure()).start(keep_logs=True)
    took = elapsed(lab.spec["ready"] - lab.spec["began"])
    say(f"lab '{lab.name}' is up after {took}: try 'vroce ssh{lab.option} 1' "
        "or 'vroce status'")


# --------------------------------------------------------------------- boot

def add_boot(parser):
    add_guest(parser)
    add_lab(parser)
    parser.add_argument("--kill", action="store_true",
                        help="if it runs, take its power away first")
    add_timeout(parser)


def run_boot(args):
    lab = Lab.load(args.lab)
    guest = lab.guest(args.guest)
    if args.kill:
        kill(lab, guest)
    boot(lab, guest, args.timeout)


# ------------------------------------------------------------- down, status

def add_down(parser):
    which = parser.add_mutually_exclusive_group()
    add_lab(which)
    which.add_argument("--all", action="store_true", help="every lab")


def run_down(args):
    labs = Lab.all() if args.all else [Lab(args.lab)]
    if not args.all and not labs[0].exists():
        labs[0].remove()
        say(f"no lab '{args.lab}' is running")
        return
    for lab in labs:
        lab.stop()
        say(f"lab '{lab.name}' is down")


def describe(lab):
    """What `status` says about a lab, as data."""
    lab.read()
    guests = []
    for guest in lab.guests:
        process = lab.state.get(guest.name, {})
        guests.append({
            "guest": guest.number, "mode": guest.mode,
            "running": bool(lab.process(guest)), "pid": process.get("pid"),
            "exit": process.get("exit"), "ssh_port": guest.ssh_port,
            "ipv4": guest.ipv4, "ipv6": guest.ipv6,
            "mac": wire.mac(guest.number)})
    began = lab.spec.get("began")
    return {"lab": lab.name, "running": lab.running(),
            "ready": "ready" in lab.spec,
            "stopped": stopped(lab.folder),
            "seconds": round(time.time() - began, 1) if began else None,
            "accel": lab.spec.get("accel"), "memory": lab.spec.get("memory"),
            "cpus": lab.spec.get("cpus"), "folder": str(lab.folder),
            "logs": str(lab.logs), "guests": guests}


def add_status(parser):
    parser.add_argument("--lab", metavar="NAME", type=lab_name,
                        help="only that one (default: every lab)")
    parser.add_argument("--json", action="store_true",
                        help="print it as data")


def run_status(args):
    labs = [describe(lab) for lab in
            ([Lab.find(args.lab)] if args.lab else Lab.all())]
    if args.json:
        print(json.dumps({"labs": labs}, indent=2))
        return
    if not labs:
        print("no lab is running")
    for lab in labs:
        word = "ended" if not lab["running"] else \
            f"stands still ('vroce cont{lab_option(lab['lab'])}' goes on)" \
            if lab["stopped"] else \
            "up" if lab["ready"] else "booting"
        print(f"lab {lab['lab']}: {word}, {lab['accel']}, {lab['cpus']} "
              f"processors and {lab['memory']} MiB a guest, logs in "
              f"{lab['logs']}")
        for guest in lab["guests"]:
            port = guest["ssh_port"] or "not yet"
            how = f"pid {guest['pid']}, ssh port {port}" \
                if guest["running"] else f"ended ({guest['exit']})"
            print(f"  guest {guest['guest']}: {guest['mode']}, {how}, "
                  f"{guest['ipv4']}, {guest['ipv6']}, {guest['mac']}")


COMMANDS = [
    Command("up", "boot guests on one wire", add_up, run_up,
            "Boot N guests whose cards share one wire, and wait until they "
            "are ready."),
    Command("boot", "boot one guest again", add_boot, run_boot,
            "Boot a guest that has ended, with what 'up' gave it and on the "
            "same wire.  Meanwhile the others' frames to it are lost."),
    Command("status", "what runs", add_status, run_status),
    Command("down", "stop a lab, leaving nothing behind", add_down, run_down),
]
