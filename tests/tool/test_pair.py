# SPDX-License-Identifier: GPL-2.0-or-later
"""The command `vroce pair`: placeholders, and whose listener counts."""

import contextlib
import os
import select
import subprocess
import sys
import unittest
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
sys.path[:0] = [str(SCRIPTS)]

from vroce_tool import pair  # noqa: E402
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


if __name__ == "__main__":
    unittest.main()
