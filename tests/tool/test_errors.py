# SPDX-License-Identifier: GPL-2.0-or-later
"""What the command says when something is missing, full, busy or wrong."""

import contextlib
import io
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import types
import unittest
from pathlib import Path
from unittest import mock

sys.path[:0] = [str(Path(__file__).resolve().parents[2] / "scripts"),
                str(Path(__file__).resolve().parent)]

from support import VROCE, Programs, artifacts  # noqa: E402
from vroce_tool import (aptroot, bench, benchengine, benchidle,  # noqa: E402
                        benchnetdevs, benchplot, boot, capture, guest,
                        guestbuild, hostpkgs, impair, lab, oops, pair, qemu,
                        qmp, relay, rootns, stopcont, util, why)
from vroce_tool.util import UserError  # noqa: E402

SCRIPTS = str(Path(VROCE).parent)


class Errors(Programs):
    def quiet(self):
        return contextlib.redirect_stderr(io.StringIO())

    def says(self, pattern):
        """A context in which this UserError is raised."""
        return self.assertRaisesRegex(UserError, f"(?s){pattern}")

    def refused(self, text, *words, status=1, **environment):
        """The command fails with this in its message, folded or not."""
        with mock.patch.dict(self.env, environment):
            result = self.vroce(*words)
        message = " ".join(result.stderr.split())
        self.assertEqual(result.returncode, status, message)
        self.assertIn(text, message)
        self.assertNotIn("Traceback", message)

    def installed(self):
        """All host packages are there, and apt knows a mirror."""
        self.program("dpkg-query", "\n".join(
            f"echo {name} installed" for name in hostpkgs.PACKAGES))
        self.program("apt-get", "case $1 in "
                     "indextargets) echo 'Debian|Debian|main|file:/m/';; "
                     "esac")


class Places(Errors):
    """Folders and files that cannot be used."""

    def test_a_cache_that_cannot_be(self):
        self.refused("cannot create the cache /dev/null/x: Not a directory; "
                     "set VROCE_CACHE to a folder you can write", "setup",
                     VROCE_CACHE="/dev/null/x")

    def test_a_runtime_folder_that_cannot_be(self):
        self.refused("cannot use /dev/null/vroce for running labs: Not a "
                     "directory; set XDG_RUNTIME_DIR", "status",
                     XDG_RUNTIME_DIR="/dev/null")

    def test_a_name_too_long_for_a_socket(self):
        long = self.folder / ("x" * 90)
        long.mkdir()
        with mock.patch.dict(os.environ, XDG_RUNTIME_DIR=str(long)), \
                self.says("too long for the name of a Unix socket: use a "
                          "shorter --lab or XDG_RUNTIME_DIR"):
            lab.Starter(lab.up_options(1, lab="a"), artifacts()).start()

    def test_results_that_could_not_be_written(self):
        for words in (["test", "tool", "--json"], ["demo", "--json"],
                      ["demo", "--pcap"], ["pcap", "-w"],
                      ["pair", "--a", "x", "--b", "y", "--json"],
                      ["bench", "--json"], ["bench", "--plot"]):
            for path, reason in (("/", "it is a folder"),
                                 ("/dev/null/x",
                                  "/dev/null is not a folder")):
                with self.subTest(words=words, path=path):
                    self.refused(f"cannot write '{path}': {reason}", *words,
                                 path, status=2)

    def on_a_file_system(self, options, *words, before="true"):
        """Run the command with a new file system in the place of the cache."""
        cache = self.folder / "cache"
        cache.mkdir(exist_ok=True)
        script = (f"mount -t tmpfs -o {options} tmpfs {cache} && {before} && "
                  f"exec {VROCE} {' '.join(words)}")
        result = subprocess.run(
            ["unshare", "--mount", "--map-root-user", "sh", "-c", script],
            env={**os.environ, **self.env}, text=True, capture_output=True,
            stdin=subprocess.DEVNULL, timeout=60, check=False)
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertNotIn("Traceback", result.stderr)
        return result.stderr

    def test_a_file_system_too_small(self):
        self.installed()
        self.assertRegex(
            self.on_a_file_system("size=64m", "setup", "--yes"),
            r"needs \d GiB but .* has 0\.1 GiB free; make room, or set "
            "VROCE_CACHE")

    def test_a_file_system_that_is_full(self):
        self.installed()
        cache = self.folder / "cache"
        self.assertRegex(
            self.on_a_file_system(
                "size=64k", "setup", "--yes",
                before=f"! dd if=/dev/zero of={cache}/full status=none "
                "2> /dev/null"),
            "No space left on device; the cache is .*VROCE_CACHE")

    def test_a_file_system_that_is_read_only(self):
        self.installed()
        self.assertRegex(
            self.on_a_file_system("ro", "setup", "--yes"),
            "Read-only file system; the cache is .*VROCE_CACHE")


class Setting(Errors):
    """The set-up."""

    def test_a_package_that_the_index_lacks(self):
        self.program("apt-cache", "true")
        apt = aptroot.AptRoot()
        apt.ready = True
        with self.says("Debian's suite .* has no Sources entry for pkg; .*"
                       "--refresh"):
            apt.source("pkg")
        with self.says("has no Packages entry for pkg"):
            apt.unpack(["pkg"], self.folder / "there")
        self.assertFalse((self.folder / "there").exists())

    def test_a_mirror_that_does_not_answer(self):
        self.installed()
        self.program("apt-get", "case $* in "
                     "indextargets*) echo 'Debian|Debian|main|file:/m/';; "
                     "*) echo 'E: Could not resolve'; exit 100;; esac")
        with self.quiet(), self.says("reading the index of Debian's suite .* "
                                     "failed .*Could not resolve.*check the "
                                     "network"):
            aptroot.AptRoot().prepare()

    def test_a_mirror_without_the_source_of_qemu(self):
        self.program("apt-cache", "echo ' qemu | 2-1 | m trixie/main Sources'")
        self.program("apt-get", "echo 'E: 404  Not Found'; exit 100")
        apt = aptroot.AptRoot()
        apt.ready = True
        with self.says("cannot fetch the source package qemu; tried.*404.*"
                       "--qemu-src DIR"):
            qemu.Tree(apt).source()

    def test_host_packages(self):
        self.program("sudo", '"$@"')
        self.program("dpkg-query", "exit 1")
        self.program("apt-get", "true")
        with mock.patch("sys.stdin.isatty", return_value=False), \
                self.says("still not installed: .*meson"):
            hostpkgs.ensure(yes=False)
        with self.quiet(), mock.patch("sys.stdin.isatty", return_value=True), \
                mock.patch("builtins.input", return_value="n"), \
                self.says("they are needed; install them with\n.*apt-get"):
            hostpkgs.ensure(yes=False)
        (self.bin / "apt-get").unlink()
        with mock.patch.dict(os.environ, PATH=str(self.bin)), \
                self.says("is not there: this needs Debian 12 or 13"):
            hostpkgs._run(["apt-get"])

    def test_a_user_who_cannot_be_root(self):
        self.program("unshare", "echo no subuids >&2; exit 1")
        rootns.require_root.cache_clear()
        self.addCleanup(rootns.require_root.cache_clear)
        with mock.patch("os.geteuid", return_value=1000), \
                self.says("needs root or a user namespace.*no subuids.*"
                          "--add-subuids"):
            rootns.require_root()

    def test_nothing_to_build_with(self):
        with self.says("there is no build root yet: run 'vroce setup'"):
            guestbuild.build_driver()

    def test_an_rdma_core_that_is_not_known(self):
        (self.folder / "CMakeLists.txt").write_text("nothing\n")
        with mock.patch.object(guestbuild, "run", return_value="99.0-1"), \
                mock.patch.object(aptroot.AptRoot, "source",
                                  return_value=self.folder), \
                self.says(r"rdma-core 99.0-1: CMakeLists.txt has no .*rxe"):
            guestbuild._prepare_rdma_core(self.folder / "tree")

    def test_a_program_that_fails_to_build(self):
        with mock.patch.object(guestbuild.images, "build_root",
                               return_value=self.folder), \
                mock.patch.object(guestbuild, "in_root", lambda *_: [
                    "sh", "-c", "echo qp.c:1: error: no; exit 2"]), \
                self.says("building the driver failed .exit status 2.:\n.*"
                          "error: no.*whole output: .*build.log"):
            guestbuild._build(["make"], self.folder, "the driver")

    def test_qemu_trees_that_are_none(self):
        for folder in ("/nonexistent", self.folder):
            with self.subTest(folder=folder):
                self.refused("is not a QEMU source tree (no VERSION or "
                             "hw/net/meson.build in it)", "setup", "--dry-run",
                             "--qemu-src", str(folder))

    def test_a_qemu_tree_where_the_series_does_not_apply(self):
        self.installed()
        tree = self.folder / "qemu"
        (tree / "hw/net").mkdir(parents=True)
        (tree / "VERSION").write_text("1.0\n")
        (tree / "hw/net/meson.build").write_text("nothing that we know\n")
        with mock.patch.object(qemu.util, "require_space"), \
                self.says("applying 0001-.*patch to .*qemu failed.*made for "
                          "Debian 13's QEMU"):
            qemu.Tree(aptroot.AptRoot(), source=tree).make()


class Interrupted(Errors):
    """A build that is interrupted, at any of its steps, and then goes on."""

    RUN = ("import sys; from vroce_tool import aptroot, cli, qemu, util; "
           "qemu.util.require_space = lambda *_: None; "
           "qemu.PATCHES = util.Path('/nonexistent'); "
           "qemu.MESON_MIN = (0, 0); "
           "cli.setup.COMMANDS[0] = cli.setup.COMMANDS[0]._replace("
           "run=lambda args: qemu.Tree(aptroot.AptRoot(), "
           "source=args.qemu_src).make() and None); "
           "sys.exit(cli.main(sys.argv[1:]))")

    def setUp(self):
        super().setUp()
        self.tree = self.folder / "qemu"
        for name in ("hw/net", "qapi", "tests/qtest"):
            (self.tree / name).mkdir(parents=True)
        (self.tree / "VERSION").write_text("10.0\n")
        (self.tree / "hw/net/meson.build").write_text("nic\n")
        self.mark = self.folder / "mark"
        self.hang = f"touch {self.mark}; exec sleep 300"
        self.configure("touch build.ninja")
        self.program("ninja", f"echo built > {qemu.TARGET}")

    def configure(self, script):
        path = self.tree / "configure"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def make(self):
        return subprocess.Popen(
            ["/usr/bin/python3", "-c", self.RUN, "setup", "--qemu-src",
             str(self.tree)], env={**os.environ, **self.env,
                                   "PYTHONPATH": SCRIPTS},
            text=True, stderr=subprocess.PIPE)

    def interrupted(self, signum):
        with self.make() as process:
            deadline = time.monotonic() + 60
            while not self.mark.exists():
                self.assertIsNone(process.poll())
                self.assertLess(time.monotonic(), deadline)
                time.sleep(0.05)
            process.send_signal(signum)
            _, errors = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130, errors)
        self.assertIn("vroce: interrupted", errors)
        self.assertNotIn("Traceback", errors)
        self.assertFalse(qemu.binary().exists())
        self.assertEqual(list((self.folder / "cache").glob("tmp/*")), [])
        self.mark.unlink()

    def succeeds(self):
        with self.make() as process:
            _, errors = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 0, errors)
        self.assertEqual(qemu.binary().read_text(), "built\n")

    def test_while_it_configures(self):
        self.configure(f"touch build.ninja; {self.hang}")
        self.interrupted(signal.SIGINT)
        self.configure("touch build.ninja all-of-it")
        self.succeeds()
        self.assertTrue((qemu.build_dir() / "all-of-it").exists())

    def test_while_it_compiles(self):
        self.program("ninja", f"echo half > {qemu.TARGET}; {self.hang}")
        self.interrupted(signal.SIGTERM)
        self.program("ninja", f"echo built > {qemu.TARGET}")
        self.succeeds()

    def test_while_a_built_one_is_built_again(self):
        self.succeeds()
        before = qemu.binary().stat().st_ino
        self.program("ninja", f"echo half > {qemu.TARGET}; {self.hang}")
        with mock.patch.object(qemu, "binary", lambda: Path("/nonexistent")):
            self.interrupted(signal.SIGHUP)
        self.assertEqual(qemu.binary().stat().st_ino, before)
        self.assertEqual(qemu.binary().read_text(), "built\n")


class Talking(Errors):
    """Guests and their QEMUs that do not answer."""

    def guest(self, port=1):
        return guest.Guest(1, guest.CARD, self.folder, self.folder, port,
                           self.folder)

    def test_a_guest_that_does_not_let_us_in(self):
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
        with self.says("guest 1 does not let us in by ssh: .*refused"):
            self.guest(port).connect()

    def test_commands_in_a_guest(self):
        self.program("ssh", "echo too bad >&2; exit 3")
        with self.says("guest 1: 'false' failed .exit status 3.: too bad"):
            self.guest().run("false")
        self.program("ssh", "exec sleep 60")
        with self.says("guest 1: 'true' did not end in 0.2 s"):
            self.guest().run("true", timeout=0.2)

    def test_a_guest_that_has_panicked(self):
        self.program("ssh", "exec sleep 60")
        one = self.guest()
        one.log("console").write_text(
            "[ 1.0] Kernel panic - not syncing: sysrq\r\r\n[ 1.1] Rebooting\n")
        for talk in (one.connect, lambda: one.run("true", timeout=0.2)):
            with self.says("guest 1 has panicked: .*sysrq; 'vroce boot "
                           "--kill --lab [^ ]+ 1' boots it again"):
                talk()

    def test_a_guest_that_was_booted_again_is_watched_anew(self):
        one = self.guest()
        one.log("console").write_text("[ 9.0] quiet\n" * 100)
        with oops.ConsoleWatch([one], stream=io.StringIO()) as watch:
            one.log("console").write_text("[ 1.0] BUG: first of the new one\n")
            self.assertTrue(watch.check())
        self.assertIn("first of the new one", watch.reports[0][1])

    def test_no_way_to_ssh(self):
        fake = mock.MagicMock()
        fake.__enter__.return_value.human.return_value = "Hub -1 (net):\n"
        with mock.patch.object(guest.Guest, "qmp", return_value=fake), \
                self.says("QEMU of guest 1 forwards no port for ssh"):
            self.guest().find_ssh_port()

    def server(self, *answers):
        """A monitor that greets, and gives these answers; then it closes."""
        path = self.folder / "qmp.sock"
        listener = socket.socket(socket.AF_UNIX)
        self.addCleanup(listener.close)
        listener.bind(str(path))
        listener.listen(1)

        def serve():
            with contextlib.suppress(OSError):
                connection, _ = listener.accept()
                with connection, connection.makefile("rw") as file:
                    for answer in answers:
                        if answer is None:
                            time.sleep(1)
                        else:
                            file.write(answer + "\n")
                            file.flush()
                            file.readline()

        if answers:
            thread = threading.Thread(target=serve)
            thread.start()
            self.addCleanup(thread.join)
        return path

    def test_a_busy_monitor(self):
        with self.says("does not answer: is another monitor connected to it"):
            qmp.QMP(self.server(), timeout=0.2)

    def test_a_monitor_that_breaks_off(self):
        path = self.server('{"QMP": {}}', '{"return": {}}')
        with qmp.QMP(path) as client, self.says("monitor broke off: QEMU is "
                                                "gone"):
            client.execute("query-name")

    def test_a_monitor_that_falls_silent(self):
        path = self.server('{"QMP": {}}', '{"return": {}}', None)
        with qmp.QMP(path, timeout=0.3) as client, \
                self.says("QEMU did not answer query-name in 0.3 s"):
            client.execute("query-name")

    def test_captures(self):
        wrong = self.folder / "wrong.pcap"
        wrong.write_text("this is none\n")
        with self.says("tshark cannot decode .*wrong.pcap: "):
            capture.decode(wrong)
        with self.says("is no display filter of Wireshark's"):
            capture.check_filter("nonsense ==")
        with mock.patch("shutil.which", return_value=None), \
                self.says("tshark is not installed: 'vroce setup'"):
            capture.decode(wrong)
        self.refused("-Y chooses what is shown; -w writes every frame",
                     "pcap", "-w", str(self.folder / "x"), "-Y", "tcp")
        with self.says("lab 'a' was started without a capture"):
            capture._boot(lab.Lab("a"), None, [])
        with self.says("cannot write /dev/null/x: Not a directory"), \
                capture.Capture(mock.Mock(), "/dev/null/x"):
            pass


class Benches(Errors):
    """Benchmarks that cannot be, or whose programs fail."""

    def test_what_does_not_go_together(self):
        for text, *words in (
                ("--save: what --quick measures is no reference", "--save",
                 "--quick"),
                ("--compare: a percentage is not negative", "--compare=-1")):
            with self.subTest(words=words):
                self.refused(text, "bench", "engine", *words)

    def test_a_card_that_fails(self):
        module = types.SimpleNamespace(run=lambda _args: {},
                                       failures=lambda _data: ["a", "b"])
        with mock.patch.dict(bench.BENCHES, x=module), \
                self.says("the card failed in a, b; its message is above"):
            bench.run(types.SimpleNamespace(
                name="x", list=False, json=None, plot=None, save=False,
                quick=False, compare=None))

    def test_an_engine_without_debug_information(self):
        with mock.patch.object(benchengine, "run", return_value="wire WRITE 1 "
                               "8 2000 0.5 4000\n"), \
                mock.patch.object(benchengine, "read_callgrind",
                                  return_value=(0, 0)), \
                self.says("callgrind saw nothing of the engine: is x built "
                          "with debug information"):
            benchengine.measure_instructions("x", "wire", 1, [8])

    def test_a_card_that_stays(self):
        one = mock.MagicMock()
        one.qmp().__enter__().execute.return_value = [{"name": "card"}]
        with mock.patch.object(benchidle, "UNPLUG_SECONDS", -1), \
                self.says("the guest did not release the card within"):
            benchidle.unplug(one)

    def test_a_switch_that_ends(self):
        self.program("vde_switch", "exit 1")
        with self.says("vde_switch did not start; it is in the package vde2"), \
                benchnetdevs.vde(self.folder):
            pass

    def test_gnuplot(self):
        self.program("gnuplot", "echo no terminal >&2; exit 1")
        with mock.patch.object(benchplot, "script", return_value=""):
            with self.says("gnuplot failed: no terminal"):
                benchplot.draw({}, self.folder / "x.svg")
            (self.bin / "gnuplot").unlink()
            with mock.patch.dict(os.environ, PATH=str(self.bin)), \
                    self.says("gnuplot is not there; install the package "
                              "gnuplot"):
                benchplot.draw({}, self.folder / "x.svg")

    def test_a_program_that_is_not_there(self):
        with self.says("/nonexistent/x is not there; 'vroce setup' installs "
                       "what is missing"):
            util.start(["/nonexistent/x"])


class Waits(Errors):
    """What does not happen in a lab that runs, whose time is up at once."""

    def setUp(self):
        super().setUp()
        self.guest = mock.MagicMock(number=1)
        self.guest.name = "guest1"
        self.guest.log.return_value = self.guest.path.return_value = \
            self.folder / "none"
        self.lab = mock.MagicMock(folder=self.folder, logs=self.folder,
                                  option="", guests=[self.guest],
                                  state={"guest1": {},
                                         "supervisor": {"pid": 1}})
        self.lab.name = "a"
        patch = mock.patch("os.kill")
        patch.start()
        self.addCleanup(patch.stop)

    def test_a_qemu_that_cannot_be_killed(self):
        self.lab.process.return_value = 7
        with mock.patch.object(boot, "END_SECONDS", -1), \
                self.says("QEMU of guest 1 .process 7. cannot be killed"):
            boot.kill(self.lab, self.guest)

    def test_a_lab_that_ends_while_it_is_asked(self):
        self.lab.process.return_value = None
        self.lab.running.return_value = False
        with self.says("lab 'a' ended"):
            boot.boot(self.lab, self.guest, 1)
        with self.says("lab 'a' ended"):
            stopcont.change(self.lab, "stop")

    def test_a_supervisor_that_does_not_answer(self):
        with mock.patch.object(stopcont, "ANSWER_SECONDS", -1), \
                self.says("the supervisor of lab 'a' does not answer: see "
                          ".*supervisor.log"):
            stopcont.change(self.lab, "stop")

    def test_a_guest_that_does_not_stop(self):
        self.guest.qmp().__enter__().execute.return_value = {
            "running": True, "status": "running"}
        with self.says("guest 1 is running after 'stop': see "
                       ".*supervisor.log"):
            stopcont._check(self.lab, self.guest, "stop")

    def test_frames_that_nobody_takes(self):
        with mock.patch.object(impair.Wire, "directions",
                               return_value=[{"waiting": 1}]), \
                self.says("the relay still holds frames back: a guest does "
                          "not take them"):
            impair.Wire(self.lab).settle(-1)

    def test_a_relay_that_refuses(self):
        path = self.folder / "relay"
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server:
            server.bind(str(path))
            server.settimeout(20)

            def answer():
                _, address = server.recvfrom(100)
                server.sendto(b'{"error": "what?"}', address)

            thread = threading.Thread(target=answer)
            thread.start()
            self.addCleanup(thread.join)
            with self.says("the relay refuses 'x': what?"):
                relay.ask(path, "x")

    def test_a_qp_that_nobody_has(self):
        with self.says("no guest has a QP 7: 'vroce inspect qp' lists them"):
            why.about(self.lab, types.SimpleNamespace(states=[]), [], 7)


class Labs(Errors):
    """Commands on a lab that is not as they need it: nobody is in it."""

    def setUp(self):
        super().setUp()
        starter = lab.Starter(lab.up_options(2, lab="a", rxe=[1, 2]),
                              artifacts())
        self.lock = starter._claim()
        self.addCleanup(os.close, self.lock)
        self.lab = starter.lab
        self.lab.spec = starter.spec()
        self.lab.save()

    def test_what_it_lacks(self):
        for text, *words in (
                ("lab 'a' is already running", "demo"),
                ("lab 'a' is already running", "up", "1"),
                ("lab 'a' has no guest 3: it has guests 1 to 2", "ssh", "3"),
                *((f"lab 'a' has no guest {number}: it has guests 1 to 2",
                   "inspect", "--guest", number) for number in "09"),
                ("a port has no number", "inspect", "port", "1"),
                ("no guest of lab 'a' has a qp 7", "inspect", "qp", "7"),
                ("guest 1 has no qp 7", "inspect", "--guest", "1", "qp", "7"),
                ("no guest of lab 'a' has the card", "why"),
                ("--human needs a line, as in", "monitor", "--human", "1"),
                ("has 2 guest(s); a pair of 1 and 3 needs 'vroce up 3", "pair",
                 "--a", "x", "--b", "y", "--guests", "1,3"),
                ("no guest of lab 'a' has the card", "reload"),
                ("cannot connect to the console of guest 1: No such file",
                 "console", "1"),
                ("cannot connect to QEMU's monitor", "monitor", "1",
                 "query-name"),
                ("lab 'a' has no logs in", "logs")):
            with self.subTest(words=words):
                command, *rest = words
                self.refused(text, command, "--lab", "a", *rest)

    def test_a_number_that_is_none(self):
        self.refused("'x' is not a number, as 17 or 0x1200", "inspect", "qp",
                     "x", status=2)

    def test_a_supervisor_that_ends(self):
        (self.lab.logs / "supervisor.log").write_text("a\nno memory\n")
        with self.says("the lab's supervisor ended: no memory"):
            boot.await_ready(self.lab, self.lab.guests, 1, mock.Mock(),
                             types.SimpleNamespace(poll=lambda: 1))

    def test_what_a_pair_says(self):
        result = pair.Result(pair.Side("a", 1, "x", 0),
                             pair.Side("b", 2, "y", 7))
        self.assertEqual(result.why(),
                         "side b (guest 2) ended with exit status 7")

    def test_what_a_pair_says_of_the_cards(self):
        well = [pair.why.NOTHING, "guest 1 QP 17: well"]
        stands = ["guest 1 QP 17 waits"]
        for status, waits, told in ((None, well, well), (None, stands, stands),
                                    (7, well, []), (7, stands, stands)):
            result = pair.Result(pair.Side("a", 1, "x"),
                                 pair.Side("b", 2, "y", status))
            with self.subTest(status=status, waits=waits), \
                    mock.patch.object(pair.why, "sentences",
                                      return_value=waits):
                self.assertEqual(pair._waits(self.lab, result), told)

    def test_a_pair_knows_when_all_is_well(self):
        cards = types.SimpleNamespace(
            guests=[types.SimpleNamespace(mode=guest.CARD)], spec={})
        with mock.patch.object(pair.why, "confirmed",
                               return_value=(mock.Mock(states=[]), [])):
            self.assertEqual(pair.why.sentences(cards)[0], pair.why.NOTHING)


if __name__ == "__main__":
    unittest.main()
