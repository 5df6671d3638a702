# SPDX-License-Identifier: GPL-2.0-or-later
"""The command `vroce monitor`: QEMU's machine protocol for people."""

import json
import re
import readline  # noqa: F401  (line editing for input())
import sys

from .lab import Lab, add_guest, add_lab
from .qmp import QMP
from .util import Command, UserError

COMMAND = re.compile(r"[A-Za-z_][\w.-]*")


def parse_words(words):
    """A QMP object from the command line.

    Either a JSON object, or a command followed by KEY=VALUE words; a VALUE
    that is JSON is taken as such, anything else as a string.
    """
    if not COMMAND.fullmatch(words[0]):
        return parse_object(" ".join(words))
    arguments = {}
    for word in words[1:]:
        key, equals, value = word.partition("=")
        if not equals or not key:
            raise UserError(f"'{word}' is not KEY=VALUE, as in "
                            "'qom-list path=/machine'")
        try:
            arguments[key] = json.loads(value)
        except ValueError:
            arguments[key] = value
    return {"execute": words[0], "arguments": arguments}


def parse_object(text):
    try:
        message = json.loads(text)
    except ValueError as error:
        raise UserError(f"'{text}' is neither a command nor a JSON object: "
                        f"{error}") from None
    if not isinstance(message, dict):
        raise UserError(f"'{text}' is not a JSON object, as "
                        '{"execute": "query-pci"}')
    if not isinstance(message.get("execute"), str):
        raise UserError('the object has no member "execute" that names a '
                        "command")
    if "id" in message:
        raise UserError('leave out "id": answers come in the order of the '
                        "commands, and without it")
    return message


def print_result(result):
    # Human monitor text reads better as text than as a JSON string.
    print(result.rstrip("\r\n") if isinstance(result, str) else
          json.dumps(result, indent=2))


def interact(qmp):
    """Read commands from standard input until it ends."""
    prompt = "(qmp) " if sys.stdin.isatty() else ""
    status = 0
    while True:
        try:
            words = input(prompt).split()
        except EOFError:
            return status
        if not words:
            continue
        if words[0] in ("quit", "exit"):
            return status
        try:
            print_result(qmp.request(parse_words(words)))
            status = 0
        except UserError as error:
            print(f"vroce: {error}", file=sys.stderr)
            status = 1


def add_arguments(parser):
    add_lab(parser)
    parser.add_argument("--human", action="store_true",
                        help="the words are one line of the human monitor")
    add_guest(parser)
    parser.add_argument("words", nargs="*", metavar="WORD",
                        help="one command, as 'query-pci' or 'qom-list "
                        "path=/machine' or a JSON object; without it, "
                        "commands are read from standard input")


def run(args):
    lab = Lab.load(args.lab)
    guest = lab.guest(args.guest)
    if args.human and not args.words:
        raise UserError("--human needs a line, as in "
                        "'monitor --human 1 info network'")
    with lab.watch(), QMP(guest.path("monitor.sock")) as qmp:
        if args.human:
            print_result(qmp.human(" ".join(args.words)))
        elif args.words:
            print_result(qmp.request(parse_words(args.words)))
        else:
            return interact(qmp)


COMMANDS = [
    Command("monitor", "QEMU's machine protocol (QMP) of a guest",
            add_arguments, run,
            "Talk to the QEMU of guest G in its machine protocol: one command "
            "given as words, or commands from standard input.  With "
            "--human the words are a line for the human monitor, as in "
            "'monitor --human 1 info network'."),
]
