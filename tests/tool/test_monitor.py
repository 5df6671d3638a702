# SPDX-License-Identifier: GPL-2.0-or-later
"""The command `vroce monitor` and the client of QMP under it."""

import contextlib
import io
import json
import socket
import sys
import threading
import unittest
from pathlib import Path
from unittest import mock

sys.path[:0] = [str(Path(__file__).resolve().parents[2] / "scripts"),
                str(Path(__file__).resolve().parent)]

from support import Folders  # noqa: E402
from vroce_tool import monitor, qmp  # noqa: E402
from vroce_tool.util import UserError  # noqa: E402


class Server:
    """Context manager: a monitor that gives these answers, one a request."""

    def __init__(self, path, *answers):
        self.path = str(path)
        self.answers = answers
        self.requests = []

    def __enter__(self):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.bind(self.path)
        self.socket.listen(1)
        self.thread = threading.Thread(target=self._serve)
        self.thread.start()
        return self

    def __exit__(self, *_exception):
        self.thread.join()
        self.socket.close()
        Path(self.path).unlink()

    def _serve(self):
        connection, _ = self.socket.accept()
        with connection, connection.makefile("rw") as file:
            for answer in ({"QMP": {"version": {}}}, {"return": {}},
                           *self.answers):
                if "QMP" not in answer:
                    line = file.readline()
                    if not line:
                        return
                    self.requests.append(json.loads(line))
                file.write(json.dumps(answer) + "\r\n")
                file.flush()


class Words(unittest.TestCase):
    def test_are_a_command(self):
        self.assertEqual(
            monitor.parse_words(["qom-list", "path=/machine", "n=3"]),
            {"execute": "qom-list", "arguments": {"path": "/machine", "n": 3}})
        self.assertEqual(monitor.parse_words(["__com.x_y"]),
                         {"execute": "__com.x_y", "arguments": {}})

    def test_are_an_object(self):
        self.assertEqual(monitor.parse_words(['{"execute":', '"stop"}']),
                         {"execute": "stop"})

    def test_that_make_no_sense(self):
        for words, why in ((["qom-list", "/machine"], "not KEY=VALUE"),
                           (["{nonsense"], "neither a command nor a JSON"),
                           (["[1]"], r"'\[1\]' is not a JSON object"),
                           (["1"], "is not a JSON object"),
                           (['"stop"'], "is not a JSON object"),
                           (["{}"], 'no member "execute"'),
                           (['{"execute": 3}'], 'no member "execute"'),
                           (['{"execute": "stop", "id": 1}'],
                            'leave out "id"')):
            with self.subTest(words=words), \
                    self.assertRaisesRegex(UserError, why):
                monitor.parse_words(words)


class Human(Folders):
    """Errors of the human monitor are text."""

    def human(self, text):
        path = self.folder / "qmp.sock"
        with Server(path, {"return": text}), qmp.QMP(path) as client:
            return client.human("a line")

    def test_errors_are_errors(self):
        for text in ("Error: Device 'x' not found\r\n",
                     "unknown command: 'frobnicate'\r\n",
                     "unexpected end of expression\r\n"
                     'Try "help x" for more information\r\n',
                     "address resolution failed for x:1\r\n"
                     "Could not open gdbserver on device 'tcp:x:1'\r\n",
                     "invalid CPU index\r\n"):
            with self.subTest(text=text), \
                    self.assertRaisesRegex(UserError,
                                           text.split("\r")[0]):
                self.human(text)

    def test_the_rest_is_none(self):
        for text in ("", "card: index=0,type=nic,model=vroce\r\n",
                     "  Error counters: 0\r\n"):
            with self.subTest(text=text):
                self.assertEqual(self.human(text), text)

    def test_status_after_the_last_line_of_input(self):
        path = self.folder / "qmp.sock"
        failing = '{"execute": "human-monitor-command", ' \
            '"arguments": {"command-line": "x"}}'
        refusal = {"return": "unknown command: 'x'\r\n"}
        for lines, answers, status in (
                ([failing], [refusal], 1),
                ([failing, "query-name"], [refusal, {"return": {}}], 0)):
            with Server(path, *answers), qmp.QMP(path) as client, \
                    mock.patch("builtins.input",
                               side_effect=[*lines, EOFError]), \
                    contextlib.redirect_stdout(io.StringIO()), \
                    contextlib.redirect_stderr(io.StringIO()) as errors:
                self.assertEqual(monitor.interact(client), status)
            self.assertIn("unknown command: 'x'", errors.getvalue())


if __name__ == "__main__":
    unittest.main()
