# SPDX-License-Identifier: GPL-2.0-or-later
"""What all parts of the tool share: errors, paths, locks, children, progress."""

import argparse
import contextlib
import fcntl
import hashlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Callable, NamedTuple

REPO = Path(__file__).resolve().parents[2]


class Command(NamedTuple):
    """A sub-command; run(args) returns an exit status or None for success."""
    name: str
    help: str
    add_arguments: Callable
    run: Callable
    description: str = None


class UserError(Exception):
    """Something the user can act on: the message says what and what to do."""


class Interrupted(BaseException):
    """A signal asks the tool to stop; not an Exception, so nothing swallows it."""


# ---------------------------------------------------------------- the cache

def cache_dir():
    """The folder for all that is built or fetched; it may be deleted whole."""
    path = os.environ.get("VROCE_CACHE")
    if not path:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        path = Path(base) / "vroce"
    path = Path(path).absolute()
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot create the cache {path}: {error.strerror}; "
                        "set VROCE_CACHE to a folder you can write") from None
    return path


def output_file(text):
    """An argparse type: a file that can be written, known before the work."""
    path = Path(text).absolute()
    place = next(one for one in (path, *path.parents) if one.exists())
    reason = "it is a folder" if path.is_dir() else \
        f"{place} is not a folder" if place != path and not place.is_dir() \
        else f"{place} does not allow it" if not os.access(place, os.W_OK) \
        else None
    if reason:
        raise argparse.ArgumentTypeError(f"cannot write '{text}': {reason}")
    return path


def require_space(gib, what):
    """Refuse to start what would not fit: gib is the free space it needs."""
    free = shutil.disk_usage(cache_dir()).free / 2**30
    if free < gib:
        raise UserError(f"{what} needs {gib:g} GiB but {cache_dir()} has "
                        f"{free:.1f} GiB free; make room, or set VROCE_CACHE "
                        "to a folder on a larger file system")


def digest(*parts):
    """A short key of what something is made from: strings, bytes or Paths.

    A Path stands for the names, modes and contents of all files below it.
    """
    result = hashlib.sha256()
    for part in parts:
        if isinstance(part, Path):
            files = sorted(p for p in part.rglob("*") if p.is_file()
                           and "__pycache__" not in p.parts) \
                if part.is_dir() else [part]
            for file in files:
                mode = file.stat().st_mode & 0o111
                result.update(f"{file.relative_to(part)} {mode}\0".encode())
                result.update(hashlib.sha256(file.read_bytes()).digest())
        else:
            data = part if isinstance(part, bytes) else str(part).encode()
            result.update(hashlib.sha256(data).digest())
    return result.hexdigest()[:12]


@contextlib.contextmanager
def lock(name):
    """Hold the cache's lock of that name; other vroce processes wait."""
    folder = cache_dir() / "locks"
    folder.mkdir(exist_ok=True)
    with open(folder / name, "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another vroce that works on {name} ...")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def scratch(name):
    """A new folder on the cache's file system, removed however the block ends.

    To keep a result, publish() it from there before the block ends.  The
    folder is locked while in use, so that one left behind by a killed process
    is recognised and removed by the next call.
    """
    base = cache_dir() / "tmp"
    base.mkdir(exist_ok=True)
    for old in base.iterdir():
        with _locked(old) as mine:
            if mine:
                remove_tree(old)
    path = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=base))
    with _locked(path):
        try:
            yield path
        finally:
            remove_tree(path)


@contextlib.contextmanager
def _locked(path):
    """Yield whether this process holds the lock of an existing folder."""
    try:
        fd = os.open(path, os.O_RDONLY)
    except OSError:
        yield False
        return
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield True
    except BlockingIOError:
        yield False
    finally:
        os.close(fd)


def publish(new, final):
    """Put a finished file or folder at its final place in one step."""
    final.parent.mkdir(parents=True, exist_ok=True)
    if final.is_dir() and not final.is_symlink():
        # A folder cannot be replaced by rename: move the old one aside first.
        with scratch("old") as aside:
            final.rename(aside / "old")
            new.rename(final)
    else:
        new.rename(final)


def write_atomic(path, text):
    """Write a small file so that a reader sees the old or the new text."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    try:
        new.write_text(text)
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)


def remove_tree(path):
    """Delete a file or folder; files of other users' ids go through as_root."""
    shutil.rmtree(path, ignore_errors=True)
    if path.exists() and not os.geteuid() == 0:
        from .rootns import as_root
        subprocess.run(as_root(["rm", "-rf", "--", str(path)]), check=False,
                       stderr=subprocess.DEVNULL)


# -------------------------------------------------------------------- labs

DEFAULT_LAB = "default"


def lab_option(name):
    """What a command that is suggested needs in order to mean that lab."""
    return "" if name == DEFAULT_LAB else f" --lab {name}"


# ---------------------------------------------------------------- children

_children = set()
_children_lock = threading.Lock()
_stopping = threading.Event()


def run(command, *, cwd=None, env=None, log=None, stdin=None, what=None,
        hint=None, on_line=None):
    """Run a program to its end; return its output (stdout and stderr, text).

    The program gets its own process group, which an interruption ends as a
    whole.  log: a file that also receives the output.  A failure raises
    UserError with the end of the output; what names the action in it and hint
    says what to do.  on_line sees each line as it comes.
    """
    command = [str(word) for word in command]
    environment = {**os.environ, **env} if env else None
    output = []
    with contextlib.ExitStack() as stack:
        sink = stack.enter_context(open(log, "a")) if log else None
        if sink:
            print("+", shlex.join(command), file=sink, flush=True)
        child = start(command, cwd=cwd, env=environment,
                      stdin=stdin or subprocess.DEVNULL,
                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                      text=True, errors="replace")
        try:
            for line in child.stdout:
                output.append(line)
                if sink:
                    sink.write(line)
                    sink.flush()
                if on_line:
                    on_line(line.rstrip())
            child.wait()
        finally:
            finish(child)
    if _stopping.is_set():
        raise Interrupted()
    if child.returncode:
        if any("No space left on device" in line for line in output):
            hint = (f"make room on the file system of {cache_dir()}, or set "
                    "VROCE_CACHE to a folder on a larger one")
        tail = "".join("  | " + line for line in output[-15:]).rstrip()
        where = f"\n  whole output: {log}" if log else ""
        advice = f"\n  {hint}" if hint else ""
        raise UserError(f"{what or shlex.join(command)} failed (exit status "
                        f"{child.returncode}):\n{tail}{where}{advice}")
    return "".join(output)


def start(command, **options):
    """subprocess.Popen in a process group that stop_children() ends."""
    if _stopping.is_set():
        raise Interrupted()
    with _children_lock:
        try:
            child = subprocess.Popen(command, start_new_session=True, **options)
        except FileNotFoundError as error:
            raise UserError(f"{error.filename} is not there; 'vroce setup' "
                            "installs what is missing") from None
        _children.add(child)
    return child


def finish(child, grace=5):
    """End a child of start() with its whole process group and reap it."""
    if child.stdin:
        # Who waits for input does not always heed SIGTERM.
        with contextlib.suppress(OSError):
            child.stdin.close()
    if child.poll() is None:
        # What ignores SIGTERM, the leader or one of its group, gets SIGKILL.
        for signum in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(child.pid, signum)
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(grace)
    if child.stdout:
        child.stdout.close()
    with _children_lock:
        _children.discard(child)


def stop_children():
    """End all that start() started and let no thread start more."""
    _stopping.set()
    with _children_lock:
        left = list(_children)
    for child in left:
        finish(child)


# ---------------------------------------------------------------- progress

def say(text):
    """Tell the user something, in a line of its own on standard error."""
    _reporter.line(text)


def elapsed(seconds):
    """Seconds as people read them: 7.1 s, 2:05."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


class step:
    """A long step: with step("building QEMU") as s: ... s.detail = "3/7".

    Shows the elapsed time while it lasts (each second on a terminal, each
    half minute elsewhere) and how long it took.  Steps of several threads may
    run at the same time.
    """

    def __init__(self, title):
        self.title = title
        self.detail = ""

    def __enter__(self):
        self.began = time.monotonic()
        _reporter.begin(self)
        return self

    def __exit__(self, kind, _value, _trace):
        _reporter.end(self)
        self.seconds = time.monotonic() - self.began
        outcome = "done in" if kind is None else "stopped after"
        say(f"{self.title}: {outcome} {elapsed(self.seconds)}")

    def ninja(self, line):
        """An on_line for run(): show ninja's [done/all] counters."""
        if line.startswith("["):
            self.detail = line[1:].split("]")[0]

    def apt(self, line):
        """An on_line for run(): show what apt and dpkg are busy with."""
        words = line.split()
        if words and words[0] in ("Unpacking", "Setting"):
            self.detail = " ".join(words[:4]).replace("Setting up", "setting up")

    def __str__(self):
        detail = f" {self.detail}" if self.detail else ""
        now = elapsed(int(time.monotonic() - self.began)).replace(".0", "")
        return f"{self.title}{detail} {now}"


class _Reporter:
    """Writes lines, and below them on a terminal one line of running steps."""

    def __init__(self):
        self.steps = []
        self.mutex = threading.RLock()
        # Of the running steps, also while a test collects sys.stderr: it is
        # another thread that tells of them, at any moment.
        self.stream = sys.stderr
        self.tty = self.stream.isatty()
        self.period = 1 if self.tty else 30     # seconds
        self.status = ""
        self.ticker = None

    def line(self, text, stream=None):
        with self.mutex:
            self._show("")
            print(f"vroce: {text}", file=stream or sys.stderr, flush=True)

    def begin(self, new):
        with self.mutex:
            self.steps.append(new)
            if not self.tty:
                self.line(f"{new.title} ...")
            if not self.ticker:
                self.ticker = threading.Thread(target=self._tick, daemon=True)
                self.ticker.start()

    def end(self, old):
        with self.mutex:
            self.steps.remove(old)

    def _tick(self):
        while True:
            time.sleep(self.period)
            with self.mutex:
                if not self.steps:
                    self.ticker = None
                    return
                text = "; ".join(map(str, self.steps))
                if self.tty:
                    self._show(text)
                else:
                    self.line(text, self.stream)

    def _show(self, text):
        if self.tty and (text or self.status):
            width = shutil.get_terminal_size().columns - 1
            print("\r\033[K" + text[:width], end="", file=self.stream,
                  flush=True)
            self.status = text


_reporter = _Reporter()
