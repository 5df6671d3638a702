# SPDX-License-Identifier: GPL-2.0-or-later
"""QEMU with the vroce device: source tree, patches, incremental build.

A flavour is a way to build: each has a tree of its own in the cache,
qemu/FLAVOUR/{src,build}, and the finished program in qemu/FLAVOUR/bin.  The
tree is the source with the series of qemu-device/patches applied, in which
hw/net/vroce and its test are links into the checkout: an edited device is one
ninja away.  A change of the series touches only the files that it changes.
"""

import filecmp
import json
import os
import re
import shutil
from pathlib import Path

from . import util
from .util import (REPO, UserError, cache_dir, digest, publish, run, say,
                   scratch, step, write_atomic)

DEVICE = REPO / "qemu-device"
PATCHES = DEVICE / "patches"
TARGET = "qemu-system-x86_64"
QTEST = "tests/qtest/vroce/vroce-test"
FUZZER = "qemu-fuzz-x86_64"     # of the sanitized flavour only
MESON_MIN = (1, 5)      # what QEMU 10's pythondeps.toml asks for
SOURCE_HINT = "or give a QEMU source tree: vroce setup --qemu-src DIR"

_OPTIONS = """
--python=/usr/bin/python3 --target-list=x86_64-softmmu
--without-default-features --enable-system --enable-tcg --enable-kvm
--enable-slirp --enable-vde --enable-virtfs --enable-attr
--enable-trace-backends=log --disable-fdt --disable-download --disable-docs
--disable-tools --disable-install-blobs
""".split()
FLAVOURS = {
    "plain": ["--disable-debug-info"],
    # Of clang, so that one build serves tests and QEMU's generic fuzzer too.
    "sanitized": ["--cc=clang", "--host-cc=clang", "--enable-fuzzing",
                  "--enable-asan", "--enable-ubsan", "--enable-debug-info",
                  "--extra-cflags=-gline-tables-only"],
}
# What QEMU loads at run time: the BIOS, its option ROMs, the NIC's ROM.
_FIRMWARE_PACKAGES = ["seabios", "qemu-system-data", "ipxe-qemu"]
_FIRMWARE_FOLDERS = ["usr/share/seabios", "usr/share/qemu"]


def binary(flavour="plain"):
    """The program that the last successful build of a flavour left."""
    return cache_dir() / "qemu" / flavour / "bin" / TARGET


def build_dir(flavour="plain"):
    """The build folder of a flavour, where the qtests are too."""
    return cache_dir() / "qemu" / flavour / "build"


def firmware_dir():
    """The folder for QEMU's -L."""
    return cache_dir() / "firmware"


def ensure_firmware(apt):
    """Unpack Debian 13's firmware files for QEMU into one folder."""
    final = firmware_dir()
    if final.exists() and not apt.refresh:
        return
    with scratch("firmware") as folder:
        apt.unpack(_FIRMWARE_PACKAGES, folder / "root")
        flat = folder / "flat"
        flat.mkdir()
        for sub in _FIRMWARE_FOLDERS:
            for file in (folder / "root" / sub).iterdir():
                if file.is_file() and not file.is_symlink():
                    file.rename(flat / file.name)
        publish(flat, final)


class Tree:
    """A flavour's source and build folders."""

    def __init__(self, apt, flavour="plain", source=None):
        """source: a tree of the user's own, else Debian's package is taken."""
        self.apt = apt
        self.flavour = flavour
        self.own = Path(source).absolute() if source else None
        if self.own and not ((self.own / "VERSION").exists() and
                             (self.own / "hw/net/meson.build").exists()):
            raise UserError(f"{self.own} is not a QEMU source tree (no VERSION "
                            "or hw/net/meson.build in it)")
        self.dir = cache_dir() / "qemu" / flavour
        self.src = self.dir / "src"
        self.build = build_dir(flavour)
        self.options = _OPTIONS + FLAVOURS[flavour]

    def source(self):
        """The unpatched source."""
        if self.own:
            return self.own
        try:
            return self.apt.source("qemu")
        except UserError as error:
            raise UserError(f"{error}\n  {SOURCE_HINT}") from None

    def make(self, targets=(TARGET, QTEST)):
        """Bring the tree up to date and build; return the program's path."""
        with util.lock(f"qemu-{self.flavour}"):
            self._refresh_source()
            self._configure()
            with step(f"building QEMU ({self.flavour})") as progress:
                run(["nice", "-n5", "ninja", f"-j{os.cpu_count()}", *targets],
                    cwd=self.build, log=self.dir / "build.log",
                    on_line=progress.ninja, what="building QEMU")
            return self._publish_binary()

    def plan(self):
        """What make() would do, in words."""
        if not self._state_file.exists():
            return f"build all of {self.own or 'Debian 13 source'}"
        return "build what changed since the last build"

    # -- the source

    @property
    def _state_file(self):
        return self.dir / "state.json"

    def _refresh_source(self):
        source = self.source()
        series = sorted(PATCHES.glob("*.patch"))
        # A tree of the user's own may change at any time, Debian's does not.
        key = digest(str(source), self.options)
        old = json.loads(self._state_file.read_text()) \
            if self._state_file.exists() else {}
        if old.get("key") != key:
            util.require_space(2, "building QEMU")
            util.remove_tree(self.dir)
            old = {"patched": []}
        patches = digest(*series)
        if self.own or old.get("patches") != patches:
            touched = sorted(set(old["patched"]) | _files_of(series))
            # Until all is done, the state says that anything may be patched.
            self._save(key, touched, None)
            sync_tree(source, self.src, keep=touched)
            self._apply(source, series, touched)
            self._save(key, sorted(_files_of(series)), patches)
        # By content: a checkout's new times alone would rebuild half of QEMU.
        self._put(DEVICE / "qapi/vroce.json", self.src / "qapi/vroce.json")
        self._link(self.src / "hw/net/vroce", DEVICE, "*/*hw_net_vroce_*.o")
        self._link(self.src / "tests/qtest/vroce", REPO / "tests/qtest",
                   "tests/qtest/vroce/*/*.o")

    def _save(self, key, patched, patches):
        write_atomic(self._state_file, json.dumps(
            {"key": key, "patched": patched, "patches": patches}))

    def _apply(self, source, series, touched):
        """Give the touched files the content that source plus series says."""
        with scratch("patches") as folder:
            for name in touched:
                if (source / name).exists():
                    (folder / name).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy2(source / name, folder / name)
            for patch in series:
                run(["patch", "-p1", "--fuzz=0", "--no-backup-if-mismatch",
                     "-i", patch],
                    cwd=folder, what=f"applying {patch.name} to {source}",
                    hint="the series is made for Debian 13's QEMU")
            for name in touched:
                new, final = folder / name, self.src / name
                if not new.exists():
                    final.unlink(missing_ok=True)
                else:
                    self._put(new, final)

    @staticmethod
    def _put(new, final):
        """Give final the content of new; what is equal keeps its time."""
        if final.is_symlink() or not final.exists() or \
                not filecmp.cmp(new, final, shallow=False):
            final.parent.mkdir(parents=True, exist_ok=True)
            final.unlink(missing_ok=True)
            shutil.copy(new, final)

    def _link(self, link, target, objects):
        """Point link to target; objects: what was compiled of the last one."""
        if link.is_symlink() and link.resolve() == target:
            return
        # Those of another checkout may be newer than this one's sources.
        for file in self.build.glob(objects):
            file.unlink()
        link.unlink(missing_ok=True)
        link.symlink_to(target)

    # -- the build

    def _configure(self):
        if (self.build / "build.ninja").exists():
            return
        env, meson = {}, self._meson()
        if meson:
            env["PYTHONPATH"] = str(meson)
        util.remove_tree(self.build)
        self.build.mkdir(parents=True)
        try:
            with step(f"configuring QEMU ({self.flavour})"):
                run([self.src / "configure", *self.options], cwd=self.build,
                    env=env, log=self.dir / "build.log",
                    what="configuring QEMU")
            if meson:
                # So that ninja can run meson again without our environment.
                site, = self.build.glob("pyvenv/lib/python3*/site-packages")
                (site / "vroce-meson.pth").write_text(f"{meson}\n")
        except BaseException:
            # Next time from the start: half of it looks like all of it.
            (self.build / "build.ninja").unlink(missing_ok=True)
            raise

    def _meson(self):
        """Where Python finds a meson that QEMU accepts; None: as it is."""
        found = re.match(r"(\d+)\.(\d+)", run(
            ["/usr/bin/python3", "-c", "import mesonbuild.coredata as c; "
             "print(c.version)"], what="asking meson for its version"))
        if found and tuple(map(int, found.groups())) >= MESON_MIN:
            return None
        final = cache_dir() / "meson"
        if not final.exists():
            with scratch("meson") as folder:
                self.apt.unpack(["meson"], folder / "root")
                publish(folder / "root", final)
        return final / "usr/lib/python3/dist-packages"

    def _publish_binary(self):
        built, final = self.build / TARGET, binary(self.flavour)
        if not final.exists() or \
                built.stat().st_mtime_ns != final.stat().st_mtime_ns:
            with scratch("bin") as folder:
                shutil.copy2(built, folder / TARGET)
                publish(folder / TARGET, final)
            say(f"QEMU is {final}")
        return final


def _files_of(series):
    """The paths that a series of patches changes, creates or deletes."""
    names = set()
    for patch in series:
        for line in patch.read_text().splitlines():
            match = re.match(r"(?:---|\+\+\+) [ab]/([^\t\n]+)", line)
            if match:
                names.add(match[1])
    return names


def sync_tree(source, tree, keep=(), skip=(".git", "build")):
    """Make tree equal to source, leaving alone what did not change.

    Files keep their times.  keep names files whose content is somebody
    else's business, skip top-level entries that are no source.  Nothing is
    deleted: build systems ignore strangers.
    """
    keep = set(keep)
    for folder, names, files in os.walk(source):
        if Path(folder) == source:
            names[:] = [name for name in names if name not in skip]
        where = tree / Path(folder).relative_to(source)
        where.mkdir(parents=True, exist_ok=True)
        for name in [*files, *(n for n in names
                               if (Path(folder) / n).is_symlink())]:
            old, new = Path(folder) / name, where / name
            if str(new.relative_to(tree)) in keep and new.exists():
                continue
            if not _same(old, new):
                new.unlink(missing_ok=True)
                shutil.copy2(old, new, follow_symlinks=False)


def _same(old, new):
    try:
        a, b = old.lstat(), new.lstat()
    except FileNotFoundError:
        return False
    return (a.st_mode, a.st_size, a.st_mtime_ns) == \
        (b.st_mode, b.st_size, b.st_mtime_ns)
