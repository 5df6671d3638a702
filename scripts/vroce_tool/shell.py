# SPDX-License-Identifier: GPL-2.0-or-later
"""Ways into a guest: the commands `ssh`, `console`, `dmesg` and `logs`."""

import argparse
import contextlib
import os
import select
import socket
import subprocess
import sys
import termios
import tty

from .guest import Remote, shell_words
from .lab import Lab, add_guest, add_lab, between
from .labstate import stands_still
from .util import Command, UserError, say

# Enter, then "~.", as in ssh; or Ctrl-].
ESCAPE = b"\x1d"
SSH_FAILED = 255


def exit_status(returncode):
    """A child's returncode as a shell would report it."""
    return returncode if returncode >= 0 else 128 - returncode


# ---------------------------------------------------------------------- ssh

def add_ssh(parser):
    add_lab(parser)
    add_guest(parser)
    parser.add_argument("command", metavar="-- CMD", nargs=argparse.REMAINDER,
                        help="a command line for the guest's shell if it is "
                        "one word, else a command and its arguments")


def run_ssh(args):
    words = args.command
    # argparse drops a "--" in front of them.
    if words and words[0].startswith("-") and \
            args.argv[-len(words) - 1] != "--":
        raise UserError(f"{words[0]} comes after the guest's number: options "
                        "stand before it, and a command after '--', as in "
                        "'vroce ssh --lab NAME 1 -- ls -l'")
    lab = Lab.load_awake(args.lab)
    guest = lab.guest(args.guest)
    terminal = sys.stdin.isatty() and sys.stdout.isatty()
    with lab.watch():
        guest.connect()
        if words:
            return run_in_guest(guest, shell_words(words), terminal)
        return _foreground(guest.ssh_command(tty=terminal))


def run_in_guest(guest, command, terminal=False, **options):
    """Run a command line with our standard streams; returns its exit status.

    Interrupted, it ends the program in the guest too.
    """
    remote = Remote(guest, command)
    try:
        return _foreground(guest.ssh_command(remote.line, terminal), **options)
    except BaseException:
        remote.end()
        raise


def _foreground(command, **options):
    """Run a program in our process group, which has the terminal."""
    child = subprocess.Popen(command, **options)
    try:
        return exit_status(child.wait())
    finally:
        # (Not SIGKILL: ssh restores the terminal's mode.)
        child.terminate()
        child.wait()


# ------------------------------------------------------------------ console

def add_console(parser):
    add_lab(parser)
    add_guest(parser)


class _Terminal:
    """Context manager: the terminal passes each key on as it is."""

    def __enter__(self):
        self.fd = sys.stdin.fileno()
        self.saved = termios.tcgetattr(self.fd) if os.isatty(self.fd) else None
        if self.saved:
            tty.setraw(self.fd)
        return self

    def __exit__(self, *_exception):
        if self.saved:
            termios.tcsetattr(self.fd, termios.TCSADRAIN, self.saved)


def run_console(args):
    lab = Lab.load(args.lab)
    guest = lab.guest(args.guest)
    with socket.socket(socket.AF_UNIX) as console:
        try:
            console.connect(str(guest.path("console.sock")))
        except OSError as error:
            raise UserError(f"cannot connect to the console of guest "
                            f"{guest.number}: {error.strerror}") from None
        say(f"console of guest {guest.number}; Ctrl-] or Enter ~. leaves it")
        if text := stands_still(lab.folder):
            say(text)
        with _Terminal():
            _relay(console)
        print()


def _relay(console):
    """Between standard streams and the console, until the user leaves.

    QEMU serves one connection at a time: a second one sees nothing until the
    first one leaves.
    """
    line_start, tilde = True, False
    sources = [console, sys.stdin.fileno()]
    while True:
        readable, _, _ = select.select(sources, [], [])
        if console in readable:
            data = console.recv(65536)
            if not data:
                return
            os.write(sys.stdout.fileno(), data)
        if sys.stdin.fileno() in readable:
            data = os.read(sys.stdin.fileno(), 65536)
            if not data:
                return
            if ESCAPE in data or (tilde and data[:1] == b"."):
                return
            tilde = line_start and data == b"~"
            if tilde:
                continue
            line_start = data[-1:] in (b"\r", b"\n")
            console.sendall(data)


# ------------------------------------------------------------- dmesg, logs

def add_dmesg(parser):
    add_lab(parser)
    parser.add_argument("-f", "--follow", action="store_true",
                        help="go on with new messages")
    add_guest(parser)


def run_dmesg(args):
    lab = Lab.load_awake(args.lab)
    guest = lab.guest(args.guest)
    command = "dmesg --color=never" + (" --follow" if args.follow else "")
    status = run_in_guest(guest, command, stdin=subprocess.DEVNULL)
    if status == SSH_FAILED:
        say(f"guest {guest.number} does not answer; this is its console:")
        with contextlib.suppress(FileNotFoundError):
            print(guest.log("console").read_text(errors="replace"))
    return status


def add_logs(parser):
    add_lab(parser)
    parser.add_argument("-f", "--follow", action="store_true",
                        help="go on with new lines")
    parser.add_argument("-n", "--lines", metavar="LINES", default=50,
                        type=between(0, 1 << 30, "lines"),
                        help="how many lines of each (default: 50)")
    parser.add_argument("guest", metavar="G", type=int, nargs="?",
                        help="only of this guest")


def run_logs(args):
    lab = Lab.find(args.lab)
    pattern = "*.log" if args.guest is None else \
        f"{lab.guest(args.guest).number}-*.log"
    files = sorted(str(path) for path in lab.logs.glob(pattern))
    if not files:
        raise UserError(f"lab '{lab.name}' has no logs in {lab.logs}")
    command = ["tail", "-v", "-n", str(args.lines)]
    if args.follow:
        command.append("--follow=name")
    return exit_status(subprocess.run(command + ["--"] + files,
                                      check=False).returncode)


COMMANDS = [
    Command("ssh", "a shell or a command in a guest", add_ssh, run_ssh,
            "Open a shell in guest G, or run a command there with standard "
            "streams and exit status passed through."),
    Command("console", "the serial console of a guest", add_console,
            run_console, "Connect to the serial console of guest G; Ctrl-], "
            "or Enter followed by ~., leaves it."),
    Command("dmesg", "the kernel log of a guest", add_dmesg, run_dmesg),
    Command("logs", "the logs of a lab", add_logs, run_logs,
            "Show the logs of a lab: consoles, QEMU's messages, and what the "
            "guests did wrong to the device (device.log)."),
]
