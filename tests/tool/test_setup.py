# SPDX-License-Identifier: GPL-2.0-or-later
"""The set-up's logic, with programs of apt that fail as a mirror does."""

import shutil
import signal
import subprocess
import sys
import tarfile
import time
import unittest
from pathlib import Path
from unittest import mock

sys.path[:0] = [str(Path(__file__).resolve().parents[2] / "scripts"),
                str(Path(__file__).resolve().parent)]

from support import VROCE, Folders, Programs  # noqa: E402
from vroce_tool import aptroot, hostpkgs, images, qemu, util  # noqa: E402
from vroce_tool.util import UserError  # noqa: E402

PATCH = """\
--- a/hw/net/meson.build
+++ b/hw/net/meson.build
@@ -1 +1,2 @@
 nic
+{line}
"""
NEW_FILE = """\
--- /dev/null
+++ b/hw/net/new.c
@@ -0,0 +1 @@
+int x;
"""


class Mirrors(Programs):
    def mirrors(self, *lines):
        self.program("apt-get", "\n".join(f"echo '{line}'" for line in lines))
        return aptroot.sources_list()

    def test_come_from_the_machines_configuration(self):
        text = self.mirrors("Debian|Debian|main|file:/m/",
                            "Debian|Debian|contrib|file:/c/",
                            "Debian|Debian-Security|main|file:/s/",
                            "Other|Other|main|file:/o/")
        key = aptroot.KEYRING
        self.assertIn(f"deb-src [signed-by={key}] file:/m/ trixie main\n", text)
        self.assertIn(f"deb [signed-by={key}] file:/s/ trixie-security main\n",
                      text)
        self.assertNotIn("file:/o/", text)
        self.assertNotIn("file:/c/", text)

    def test_none_is_an_error(self):
        with self.assertRaisesRegex(UserError, "no Debian mirror"):
            self.mirrors("Other|Other|main|file:/o/")


class Sources(Programs):
    """A package whose newest version lacks its .dsc, or all, on the mirror."""

    def setUp(self):
        super().setUp()
        self.program("apt-cache", "echo ' pkg | 2-1 | m trixie/main Sources'\n"
                     "echo ' pkg | 1-1 | m trixie/main Sources'")
        tree = self.folder / "pkg-2"
        (tree / "debian/patches").mkdir(parents=True)
        (tree / "file").write_text("old\n")
        (tree / "debian/patches/series").write_text("# none\nfix.patch\n")
        (tree / "debian/patches/fix.patch").write_text(
            "--- a/file\n+++ b/file\n@@ -1 +1 @@\n-old\n+new\n")
        with tarfile.open(self.folder / "pkg_2.orig.tar.gz", "w:gz") as tar:
            tar.add(tree / "file", "pkg-2/file")
        with tarfile.open(self.folder / "pkg_2-1.debian.tar.xz", "w:xz") as tar:
            tar.add(tree / "debian", "debian")
        self.apt = aptroot.AptRoot()
        self.apt.ready = True

    def test_do_without_the_description(self):
        self.program("apt-get", f"""
            case "$*" in
            *--tar-only*) cp {self.folder}/pkg_2.orig.tar.gz . ;;
            *--diff-only*) cp {self.folder}/pkg_2-1.debian.tar.xz . ;;
            *) echo 'E: pkg_2-1.dsc  404  Not Found'; exit 100 ;;
            esac""")
        tree = self.apt.source("pkg")
        self.assertEqual(tree.name, "pkg-2-1")
        self.assertEqual((tree / "file").read_text(), "new\n")
        # What was fetched stays, whatever the mirror does later.
        self.program("apt-get", "exit 100")
        self.assertEqual(self.apt.source("pkg"), tree)
        self.assertEqual(self.apt.source("pkg", "2-1"), tree)
        with self.assertRaises(UserError):
            self.apt.source("pkg", "3-1")

    def test_missing_altogether(self):
        self.program("apt-get", "echo 'E: 404  Not Found'; exit 100")
        with self.assertRaises(UserError) as caught:
            self.apt.source("pkg")
        text = str(caught.exception)
        for part in ("the source package pkg", "--tar-only --diff-only pkg=1-1",
                     "404  Not Found", "--refresh"):
            self.assertIn(part, text)
        self.assertEqual(list((self.folder / "cache/tmp").iterdir()), [])


class QemuTree(Folders):
    def setUp(self):
        super().setUp()
        self.source = self.folder / "qemu"
        (self.source / "hw/net").mkdir(parents=True)
        (self.source / "qapi").mkdir()
        (self.source / "tests/qtest").mkdir(parents=True)
        (self.source / "VERSION").write_text("10.0\n")
        (self.source / "hw/net/meson.build").write_text("nic\n")
        self.patches = self.folder / "patches"
        self.patches.mkdir()
        patch = mock.patch.object(qemu, "PATCHES", self.patches)
        patch.start()
        self.addCleanup(patch.stop)

    def refreshed(self):
        tree = qemu.Tree(aptroot.AptRoot(), source=self.source)
        tree._refresh_source()
        return tree.src / "hw/net"

    def test_follows_the_series(self):
        (self.patches / "1.patch").write_text(PATCH.format(line="one"))
        (self.patches / "2.patch").write_text(NEW_FILE)
        net = self.refreshed()
        self.assertEqual((net / "meson.build").read_text(), "nic\none\n")
        self.assertEqual((net / "new.c").read_text(), "int x;\n")
        self.assertTrue((net / "vroce").samefile(qemu.DEVICE))
        self.assertEqual((self.source / "hw/net/meson.build").read_text(),
                         "nic\n")
        before = (net / "meson.build").stat().st_mtime_ns
        self.refreshed()
        self.assertEqual((net / "meson.build").stat().st_mtime_ns, before)
        (self.patches / "1.patch").write_text(PATCH.format(line="two"))
        (self.patches / "2.patch").unlink()
        self.refreshed()
        self.assertEqual((net / "meson.build").read_text(), "nic\ntwo\n")
        self.assertFalse((net / "new.c").exists())

    def test_a_patch_that_does_not_apply_is_named_and_repaired(self):
        (self.patches / "1.patch").write_text(
            PATCH.format(line="one").replace(" nic", " other"))
        with self.assertRaisesRegex(UserError, "applying 1.patch"):
            self.refreshed()
        (self.patches / "1.patch").write_text(PATCH.format(line="one"))
        self.assertEqual((self.refreshed() / "meson.build").read_text(),
                         "nic\none\n")

    def test_follows_a_tree_of_the_users_own(self):
        self.refreshed()
        (self.source / "VERSION").write_text("10.1\n")
        net = self.refreshed()
        self.assertEqual((net.parents[1] / "VERSION").read_text(), "10.1\n")

    def test_follows_the_checkout(self):
        net = self.refreshed()
        schema = net.parents[1] / "qapi/vroce.json"
        build = net.parents[2] / "build"
        mine = build / "libcommon.a.p/hw_net_vroce_vroce.c.o"
        foreign = build / "libcommon.a.p/hw_net_igb.c.o"
        mine.parent.mkdir(parents=True)
        for file in (mine, foreign):
            file.touch()
        before = schema.stat().st_mtime_ns
        self.refreshed()
        self.assertTrue(mine.exists())
        other = self.folder / "other"
        shutil.copytree(qemu.DEVICE, other)
        (other / "qapi/vroce.json").touch()
        with mock.patch.object(qemu, "DEVICE", other):
            self.refreshed()
        self.assertTrue((net / "vroce").samefile(other))
        self.assertFalse(mine.exists())
        self.assertTrue(foreign.exists())
        self.assertEqual(schema.stat().st_mtime_ns, before)

    def test_a_folder_that_is_no_qemu(self):
        result = self.vroce("setup", "--dry-run", "--qemu-src", self.folder)
        self.assertEqual(result.returncode, 1)
        self.assertIn("is not a QEMU source tree", result.stderr)


class Cache(Folders):
    def test_scratch_is_removed_and_clears_what_a_crash_left(self):
        old = util.cache_dir() / "tmp/crashed"
        (old / "sub").mkdir(parents=True)
        with util.scratch("one") as one:
            self.assertFalse(old.exists())
            with util.scratch("two"):
                self.assertTrue(one.exists())
        self.assertFalse(one.exists())

    def test_publish_replaces_a_folder(self):
        final = util.cache_dir() / "thing"
        for text in ("old", "new"):
            with util.scratch("thing") as folder:
                (folder / "file").write_text(text)
                util.publish(folder, final)
        self.assertEqual((final / "file").read_text(), "new")

    def test_a_full_disk_is_said(self):
        usage = mock.Mock(free=2**29)
        with mock.patch("shutil.disk_usage", return_value=usage), \
                self.assertRaisesRegex(UserError, "needs 2 GiB .* 0.5 GiB"):
            util.require_space(2, "this")
        with self.assertRaisesRegex(UserError, "VROCE_CACHE"):
            util.run(["sh", "-c", "echo No space left on device; exit 1"])

    def test_a_recipe_changes_the_key(self):
        folder = self.folder / "recipe"
        folder.mkdir()
        (folder / "init").write_text("a")
        first = util.digest(folder)
        (folder / "init").chmod(0o755)
        second = util.digest(folder)
        (folder / "init").write_text("b")
        self.assertEqual(len({first, second, util.digest(folder)}), 3)


class Interruption(Programs):
    def test_leaves_no_process_and_no_scratch(self):
        mark = self.folder / "pid"
        self.program("dpkg-query", "\n".join(
            f"echo {name} installed" for name in hostpkgs.PACKAGES))
        self.program("apt-get", f"""
            case "$1" in
            indextargets) echo 'Debian|Debian|main|file:/m/' ;;
            *) sleep 300 & echo $! >{mark}; wait ;;
            esac""")
        with subprocess.Popen([VROCE, "setup", "--yes"], text=True,
                              stdin=subprocess.DEVNULL,
                              stderr=subprocess.PIPE) as process:
            for _ in range(300):
                if mark.exists() and mark.read_text():
                    break
                time.sleep(0.1)
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130, errors)
        self.assertIn("vroce: interrupted", errors)
        status = Path(f"/proc/{int(mark.read_text())}/status")
        if status.exists():
            # Dead, and init is about to notice.
            self.assertIn("State:\tZ", status.read_text())
        self.assertEqual([path for path in
                          (self.folder / "cache").glob("tmp/*")], [])


class HostPackages(Programs):
    def test_what_is_missing_is_named(self):
        self.program("dpkg-query", "\n".join(
            f"echo {name} installed" for name in hostpkgs.PACKAGES[1:]))
        self.assertEqual(hostpkgs.missing(), hostpkgs.PACKAGES[:1])

    def test_a_package_that_cannot_be_found(self):
        self.program("dpkg-query", "exit 1")
        self.program("apt-get", "case $* in *install*) exit 100;; esac")
        self.program("sudo", '"$@"')
        with mock.patch("sys.stdin.isatty", return_value=False), \
                self.assertRaisesRegex(UserError, "install .* failed"):
            hostpkgs.ensure(yes=False)


class Recipes(unittest.TestCase):
    def test_name_packages(self):
        self.assertIn("rdma-core", images.packages("guest"))
        self.assertIn("gcc", images.packages("build"))


if __name__ == "__main__":
    unittest.main()
