# SPDX-License-Identifier: GPL-2.0-or-later
"""A client of QEMU's machine protocol, QMP."""

import contextlib
import json
import re
import socket

from .util import UserError

# The human monitor has no status: its errors are lines among its text.
_HUMAN_ERROR = re.compile(r"""^(Error\b|unknown (command|event)|could not |"""
                          r"""invalid |Try "help )""",
                          re.IGNORECASE | re.MULTILINE)


class QMPError(UserError):
    """QEMU refused a command; reply is its error object."""

    def __init__(self, command, reply):
        self.reply = reply
        super().__init__(f"{command}: {reply.get('desc', reply)}")


class QMP:
    """One connection; a context manager.  Events that arrive are kept."""

    def __init__(self, path, timeout=30):
        self.events = []
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(timeout)
        try:
            self.socket.connect(str(path))
            self.file = self.socket.makefile("rw", encoding="utf-8")
            self._next("QMP")
        except TimeoutError:
            self.close()
            raise UserError(f"{path} does not answer: is another monitor "
                            "connected to it?") from None
        except OSError as error:
            self.close()
            raise UserError(f"cannot connect to QEMU's monitor {path}: "
                            f"{error.strerror or error}; 'vroce status' shows "
                            "what runs") from None
        self.execute("qmp_capabilities")

    def __enter__(self):
        return self

    def __exit__(self, *_exception):
        self.close()

    def close(self):
        """End the connection, so that another one may come."""
        # The file would keep it open for as long as someone knows it.
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()

    def execute(self, command, **arguments):
        """Run a command and return its result; raises QMPError."""
        return self.request({"execute": command, "arguments": {
            name.replace("_", "-"): value
            for name, value in arguments.items()}})

    def request(self, message):
        """Send a whole QMP object and return its result; raises QMPError.

        A line for the human monitor that fails raises UserError.
        """
        try:
            self.file.write(json.dumps(message) + "\n")
            self.file.flush()
            reply = self._next("return", "error")
        except TimeoutError:
            raise UserError(f"QEMU did not answer {message.get('execute')} "
                            f"in {self.socket.gettimeout()} s") from None
        except OSError as error:
            raise UserError(f"QEMU's monitor broke off: {error}") from None
        if "error" in reply:
            raise QMPError(message.get("execute"), reply["error"])
        result = reply["return"]
        if message.get("execute") == "human-monitor-command" and \
                _HUMAN_ERROR.search(result):
            raise UserError(result.replace("\r", "").strip())
        return result

    def human(self, line):
        """Run a line of the human monitor; return what it prints."""
        return self.execute("human-monitor-command", command_line=line)

    def _next(self, *keys):
        for line in self.file:
            message = json.loads(line)
            if any(key in message for key in keys):
                return message
            if "event" in message:
                self.events.append(message)
        raise ConnectionError("QEMU is gone")
