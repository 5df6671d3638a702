# SPDX-License-Identifier: GPL-2.0-or-later
"""The command `vroce pair`: placeholders, and whose listener counts."""

import contextlib
import os
import select
import subprocess
import sys
import types
import unittest
from pathlib import Path
from unittest import mock

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
sys.path[:0] = [str(SCRIPTS), str(Path(__file__).resolve().parent)]

from support import Programs  # noqa: E402
from vroce_tool import guest, pair  # noqa: E402
from vroce_tool.util import UserError  # noqa: E402

LISTEN = """
import socket, sys, time
one = socket.socket({})
one.bind(("127.0.0.1", 0))
{}
time.sleep(60)
"""
TCP = LISTEN.format("", "one.listen()")
UDP = LISTEN.format("type=socket.SOCK_DGRAM", "")


class FakeGuest:
    ipv6 = "fd77::1"

    def rdma(self, address=None):
        return {"dev": "rxe0", "gid": "2" if address else "1",
                "netdev": "eth1"}


class Placeholders(unittest.TestCase):
    def expand(self, command):
        return pair.expand(command, FakeGuest(), {"a": "1.2.3.4", "b": "h"})

    def test_known(self):
        self.assertEqual(self.expand("p -d {dev} -g {gid}/{gid6} {a} {b}"),
                         "p -d rxe0 -g 1/2 1.2.3.4 h")

    def test_unknown(self):
        with self.assertRaisesRegex(
                UserError, r"^\{x\} stands for nothing: there are \{a\} \{b\} "
                r"\{dev\} \{gid\} \{gid6\} \{netdev\}; write \{\{x\}\}"):
            self.expand("echo {x}")

    def test_braces_of_others(self):
        for text in ("${x} ${a} ${a:-b}", "x.{a,b}", "{1..3}", "a{3}", "{}",
                     "{ true; }", "{{", "}}"):
            with self.subTest(text=text):
                self.assertEqual(self.expand(text), text)
        self.assertEqual(self.expand("awk '{{print}}' {{a}}"),
                         "awk '{print}' {a}")


class _Listens:
    """What listen-wait says; a None is nothing yet."""

    def __init__(self, words):
        self.words = list(words)

    def next(self, _timeout):
        return self.words.pop(0) if self.words else None


class _Ends:
    """A process that has ended with a status, or runs for ever."""

    def __init__(self, guest, status):
        self.status = status
        self.side = pair.Side("ab"[guest - 1], guest, "x")

    def go(self):
        pass

    def wait(self, _deadline):
        self.side.status = self.status
        return self.status is not None


class Messages(unittest.TestCase):
    """What is said of a pair that goes wrong; its time is up at once."""

    def converse(self, words, server, client, daemon=False, reports=()):
        self.server = _Ends(1, server)
        return pair._converse(_Listens(words), self.server, _Ends(2, client),
                              0, daemon, types.SimpleNamespace(reports=reports))

    def test_all(self):
        cannot = "cannot watch for listeners in guest 1"
        listens = ("armed", "listening")
        for words, server, client, error in (
                (("",), None, None, cannot),
                ((None,), None, None, cannot),
                (("armed", ""), None, None, cannot),
                (("armed",), 3, None,
                 "the server ended (exit status 3) before it listened"),
                (("armed",), None, None, "the server did not listen within "
                 "the time limit (--timeout)"),
                (listens, None, None, "the client did not end within the time "
                 "limit (--timeout)"),
                (listens, None, 7, "the client ended with exit status 7"),
                (listens, None, 0, "the server still runs 1 s after its "
                 "client ended (--daemon stops one that never ends)"),
                (("armed", None, "listening"), 0, 0, None),
                (listens, 0, 0, None)):
            with self.subTest(words=words, server=server, client=client):
                self.assertEqual(self.converse(words, server, client), error)

    def test_a_daemon(self):
        self.assertIsNone(self.converse(("armed", "listening"), None, 0, True))
        self.assertEqual(self.server.side.status, 0)

    def test_a_panic(self):
        self.assertEqual(
            self.converse(("armed", "listening"), None, None,
                          reports=[(1, "Oops"), (2, "Kernel panic - no")]),
            "guest 2 panicked: Kernel panic - no")


class ListenWait(unittest.TestCase):
    """in_guest/listen-wait, in a network of its own on this machine."""

    def setUp(self):
        self.stack = contextlib.ExitStack()
        self.addCleanup(self.stack.close)
        self.space = self.start(["unshare", "--map-root-user", "--net",
                                 "sh", "-c", "ip link set lo up; echo; cat"])
        self.assertEqual(self.space.stdout.readline(), "\n")
        self.watch = self.enter(
            SCRIPTS / "vroce_tool/in_guest/listen-wait", "VROCE_PAIR=1.2")
        self.assertEqual(self.says(20), "armed")

    def start(self, words, mark=None):
        env = {**os.environ, "VROCE_PAIR": mark} if mark else None
        child = subprocess.Popen(words, stdin=subprocess.PIPE, env=env,
                                 stdout=subprocess.PIPE, text=True)
        self.stack.enter_context(child)
        self.stack.callback(child.kill)
        return child

    def enter(self, *words, mark=None):
        return self.start(["nsenter", "--preserve-credentials", "--user",
                           "--net", "-t", str(self.space.pid), *words], mark)

    def says(self, seconds):
        """The next line of listen-wait, None when there is none in time."""
        if select.select([self.watch.stdout], [], [], seconds)[0]:
            return self.watch.stdout.readline().strip()
        return None

    def test_others_do_not_count(self):
        self.enter(sys.executable, "-c", TCP)
        self.enter(sys.executable, "-c", TCP, mark="1.23")
        self.assertIsNone(self.says(3))
        self.enter("sh", "-c", 'setsid "$@"', "-", sys.executable, "-c", TCP,
                   mark="1.2")
        self.assertEqual(self.says(20), "listening")

    def test_udp(self):
        self.enter(sys.executable, "-c", UDP, mark="1.2")
        self.assertEqual(self.says(20), "listening")

    def test_ends_with_its_input(self):
        self.watch.stdin.close()
        self.assertEqual(self.says(20), "")


class End(Programs):
    """Ending a program in a guest, which is this machine."""

    def setUp(self):
        super().setUp()
        # As sshd: a shell that leads a process group.
        self.program("ssh", 'for line; do :; done; exec setsid -w bash -c '
                     '"$line"')
        patch = mock.patch.object(guest, "RUN", str(self.folder))
        patch.start()
        self.addCleanup(patch.stop)
        self.guest = guest.Guest(1, guest.CARD, self.folder, self.folder, 1,
                                 self.folder)

    def remote(self, command):
        """(Remote, its ssh) of a command that has printed a line."""
        remote = guest.Remote(self.guest, command)
        child = subprocess.Popen(self.guest.ssh_command(remote.line),
                                 stdout=subprocess.PIPE, text=True)
        self.addCleanup(child.wait)
        self.addCleanup(child.stdout.close)
        self.addCleanup(child.kill)
        self.assertEqual(child.stdout.readline(), "on\n")
        return remote, child

    def test_a_program_that_stands_still(self):
        remote, child = self.remote(
            "sh -c 'echo on; kill -STOP $$; sleep 60'; true")
        remote.end()
        # Its pipe ends when nothing of it is left.
        self.assertEqual(child.communicate(timeout=20)[0], "")
        self.assertFalse(Path(remote.file).exists())

    def test_a_lab_that_stands_still(self):
        remote, child = self.remote("echo on; sleep 60")
        (self.folder / "state.json").write_text(
            '{"supervisor": {"stopped": true}}')
        with mock.patch.object(self.guest, "run") as run:
            remote.end()
        run.assert_not_called()
        (self.folder / "state.json").unlink()
        remote.end()
        child.communicate(timeout=20)


if __name__ == "__main__":
    unittest.main()
