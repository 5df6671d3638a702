# SPDX-License-Identifier: GPL-2.0-or-later
"""The relay between two guests, a wire with faults: see tests/impair/relay.c.

What it shall do is written as a SPEC: 'off', or words with commas between.

    loss=1%,dup=2%,reorder=2%,gap=3,corrupt=0.1%,delay=1ms,jitter=200us,seed=7
"""

import argparse
import json
import re
import socket
from fractions import Fraction
from typing import NamedTuple

from . import hostbuild
from .util import UserError

_TARGET = "tests/impair/relay"
_UNITS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9}
_ANSWER_SECONDS = 10
MAX_DELAY = "10s"
MAX_GAP = 1000
DIRECTIONS = (1, 2)     # by the guest that sends


class Spec(NamedTuple):
    """Chances are in parts per billion, times in nanoseconds."""
    loss: int = 0
    dup: int = 0
    reorder: int = 0
    gap: int = 3        # so many frames overtake a reordered one
    corrupt: int = 0
    delay: int = 0
    jitter: int = 0
    seed: int = 1

    def __str__(self):
        """As parse() takes it."""
        words = [f"{name}={show(value)}"
                 for name, (_parse, show) in _WORDS.items()
                 if (value := getattr(self, name)) and name not in
                 ("gap", "seed")]
        if not words:
            return "off"
        if self.reorder and self.gap != OFF.gap:
            words.append(f"gap={self.gap}")
        return ",".join(words + [f"seed={self.seed}"])

    def request(self, sender="both"):
        """What tells the relay, for the frames that a guest sends."""
        return " ".join(["set", str(sender)] + [
            f"{name}={value}" for name, value in self._asdict().items()])


def parse(text):
    """A Spec from its text; raises UserError."""
    if text == "off":
        return OFF
    values = {}
    for word in text.split(","):
        name, equals, value = word.partition("=")
        if name not in _WORDS:
            raise UserError(f"'{word}' is no impairment; there are "
                            f"{', '.join(_WORDS)}, as in "
                            "'loss=1%,delay=1ms,seed=7', and 'off'")
        if not equals or not value:
            raise UserError(f"'{word}' has no value; write {_example(name)}")
        if name in values:
            raise UserError(f"'{name}' is there twice")
        try:
            values[name] = _WORDS[name][0](value)
        except ValueError as error:
            raise UserError(f"{word}: {error}; write {_example(name)}") \
                from None
    if "gap" in values and not values.get("reorder"):
        raise UserError("gap says how many frames overtake a reordered one: "
                        "it needs reorder=")
    return Spec(**values)


def argument(text):
    """An argparse type: a SPEC."""
    try:
        return parse(text)
    except UserError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def duration(limit):
    """A function from '1.5ms' to nanoseconds, of which limit is the most."""
    def parse_time(text):
        match = re.fullmatch(r"(\d+(?:\.\d+)?)(ns|us|ms|s)", text)
        if not match:
            raise ValueError("not a time in ns, us, ms or s")
        value = round(Fraction(match[1]) * _UNITS[match[2]])
        if limit and value > duration(None)(limit):
            raise ValueError(f"more than {limit}")
        return value
    return parse_time


def _percent(text):
    if not re.fullmatch(r"\d+(\.\d+)?%", text):
        raise ValueError("not a percentage")
    value = Fraction(text[:-1]) * 10**7
    if value > 10**9:
        raise ValueError("more than 100%")
    if value.denominator != 1:
        raise ValueError("finer than a billionth")
    return int(value)


def _whole(low, high):
    def parse_whole(text):
        value = int(text) if text.isdecimal() else -1
        if not low <= value <= high:
            raise ValueError(f"not a number from {low} to {high}")
        return value
    return parse_whole


def show_time(value):
    """Nanoseconds in the largest unit that needs no fraction."""
    name = max((name for name in _UNITS if value % _UNITS[name] == 0),
               key=_UNITS.get)
    return f"{value // _UNITS[name]}{name}"


def _show_percent(value):
    return f"{value / 10**7:.7f}".rstrip("0").rstrip(".") + "%"


_CHANCE = (_percent, _show_percent)
_TIME = (duration(MAX_DELAY), show_time)
# Each word of a SPEC: from text to number, and back.
_WORDS = {
    "loss": _CHANCE, "dup": _CHANCE, "reorder": _CHANCE,
    "gap": (_whole(1, MAX_GAP), str), "corrupt": _CHANCE,
    "delay": _TIME, "jitter": _TIME, "seed": (_whole(0, 2**64 - 1), str),
}
OFF = Spec()


def _example(name):
    kind = _WORDS[name]
    return f"{name}=1%" if kind is _CHANCE else \
        f"{name}=1ms, at most {MAX_DELAY}" if kind is _TIME else f"{name}=7"


# -------------------------------------------------------------- the process

def binary():
    """The relay's program, as build() leaves it."""
    return hostbuild.folder(hostbuild.RELEASE) / _TARGET


def build():
    """Bring the program up to date."""
    hostbuild.build(hostbuild.RELEASE, _TARGET, what="the relay")


def command(fds, path, spec):
    """The words that run it between two descriptors, asked at path."""
    return [str(binary()), *map(str, fds), str(path), spec.request()]


def ask(path, request):
    """The answer to a request; raises UserError when there is none."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.settimeout(_ANSWER_SECONDS)
        try:
            sock.bind("")
            sock.connect(str(path))
            sock.send(request.encode())
            answer = json.loads(sock.recv(1 << 16))
        except OSError as error:
            raise UserError(f"the relay does not answer ({path}: "
                            f"{error.strerror or error}): has the lab "
                            "ended?") from None
    if "error" in answer:
        raise UserError(f"the relay refuses '{request}': {answer['error']}")
    return answer
