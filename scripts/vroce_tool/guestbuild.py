# SPDX-License-Identifier: GPL-2.0-or-later
"""Driver, provider and test programs, built in the build root.

The sources are copied with their times into the cache (guest-build/), so that
make and ninja rebuild what changed.  Results are put into the folder that
guests see as /artifacts, each in one step.
"""

import filecmp
import os
import shutil

from . import images, util
from .aptroot import AptRoot
from .qemu import sync_tree
from .rootns import in_root
from .util import (REPO, UserError, cache_dir, publish, run, say, scratch,
                   write_atomic)

DRIVER = REPO / "guest-driver"
PROVIDER = REPO / "guest-userlib"
KSELFTESTS = REPO / "tests/guest"
PROGRAMS = [REPO / "tests/e2e", REPO / "tests/hostile"]
HARDWARE = REPO / "qemu-device/vroce_hw.h"

# Where the build root has the kernel's self-test harness.
_SELFTESTS = "/usr/src/linux/tools/testing/selftests"
_CMAKE = """
-G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_PREFIX=/usr
-DCMAKE_INSTALL_SYSCONFDIR=/etc -DCMAKE_INSTALL_RUNDIR=/run
-DNO_PYVERBS=1 -DNO_MAN_PAGES=1 -DENABLE_STATIC=0 -DENABLE_WERROR=0
""".split()
_JOBS = f"-j{os.cpu_count()}"
# Where the build root sees the folder of a build.
_TREE = "/tree"


def artifacts_dir():
    """The folder that guests see as /artifacts."""
    return cache_dir() / "artifacts"


def build_all():
    """Bring all that runs in guests up to date."""
    build_driver()
    build_provider()
    build_tests()


def build_driver():
    """Build vroce.ko for the guests' kernel; returns its path."""
    with util.lock("guest-driver"):
        tree = _work("driver")
        sync_tree(DRIVER, tree / "guest-driver")
        _copy(HARDWARE, tree / "qemu-device/vroce_hw.h")
        _build(["make", _JOBS, "-C", f"{_TREE}/guest-driver",
                f"KDIR={_kernel_build()}"], tree, "the driver")
        return _deliver(tree / "guest-driver/vroce.ko")


def build_provider():
    """Build libvroce-rdmavNN.so inside rdma-core's tree; returns its path."""
    with util.lock("guest-provider"):
        tree = _work("rdma-core")
        source = tree / "src"
        _prepare_rdma_core(tree)
        sync_tree(PROVIDER, source / "providers/vroce")
        _copy(HARDWARE, source / "providers/vroce/vroce_hw.h")
        _copy(DRIVER / "vroce-abi.h", source / "kernel-headers/rdma/vroce-abi.h")
        if not (tree / "build/build.ninja").exists():
            _build(["cmake", *_CMAKE, "-S", f"{_TREE}/src", "-B",
                    f"{_TREE}/build"],
                   tree, "rdma-core's configuration")
        _build(["ninja", _JOBS, "-C", f"{_TREE}/build", "providers/vroce/all"],
               tree, "the provider")
        library, = (tree / "build/lib").glob("libvroce-rdmav*.so")
        for old in artifacts_dir().glob("libvroce-rdmav*.so"):
            if old.name != library.name:
                old.unlink()
        return _deliver(library)


def build_tests():
    """Build the kselftests, and programs and modules of the two-guest tests.

    Returns the kselftests' paths below /artifacts.
    """
    with util.lock("guest-tests"):
        tree = _work("tests")
        for source in (KSELFTESTS, *PROGRAMS):
            sync_tree(source, tree / source.name)
        for folder in PROGRAMS:
            programs = sorted(path.stem for path in folder.glob("*.c"))
            _build(["make", _JOBS, "-C", f"{_TREE}/{folder.name}",
                    "CFLAGS=-O2 -g -Wall",
                    "LDLIBS=-libverbs -lrdmacm -lpthread", *programs], tree,
                   "the test programs")
            for name in programs:
                _deliver(tree / folder.name / name)
        _build(["make", _JOBS, "-C", _kernel_build(),
                f"M={_TREE}/hostile/module",
                # It would take pahole.
                "CONFIG_DEBUG_INFO_BTF_MODULES=", "modules"], tree,
               "the test modules")
        for path in (tree / "hostile/module").glob("*.ko"):
            _deliver(path)
        _build(["make", _JOBS, "-C", f"{_SELFTESTS}/vroce", "VROCE=/vroce"],
               tree, "the kselftests", [(tree / "guest",
                                         f"{_SELFTESTS}/vroce")])
        built = [path for path in sorted((tree / "guest").iterdir())
                 if path.is_file() and os.access(path, os.X_OK)
                 and (KSELFTESTS / f"{path.name}.c").exists()]
        for path in built:
            _deliver(path, "tests")
        return [f"tests/{path.name}" for path in built]


def _kernel_build():
    """Where the build root has what modules of the guests' kernel need."""
    return f"/lib/modules/{images.kernel_release()}/build"


def _work(name):
    """The folder of one build; a new build root makes it start anew."""
    root = images.build_root()
    if not root.exists():
        raise UserError("there is no build root yet: run 'vroce setup'")
    folder = cache_dir() / "guest-build" / name
    key = (root.parent / "key").read_text() + str(root.stat().st_ino) + _TREE
    stamp = folder / "build-root"
    if not stamp.exists() or stamp.read_text() != key:
        util.remove_tree(folder)
        write_atomic(stamp, key)
    return folder


def _build(command, tree, what, binds=()):
    """Run a build in the build root, where tree is _TREE."""
    run(in_root(images.build_root(), command,
                [(tree, _TREE), (REPO, "/vroce"), *binds]),
        log=tree / "build.log", what=f"building {what}")


def _prepare_rdma_core(tree):
    """Unpack the rdma-core that the guests have, with a place for ours."""
    source = tree / "src"
    if (tree / "prepared").exists():
        return
    version = run(in_root(images.build_root(), [
        "dpkg-query", "-W", "-f", "${source:Version}", "libibverbs1"]),
        what="asking for the version of libibverbs1").strip()
    sync_tree(AptRoot().source("rdma-core", version), source)
    for name, old, new in (
            ("CMakeLists.txt", "add_subdirectory(providers/rxe)\n",
             "add_subdirectory(providers/vroce)\n"),
            ("kernel-headers/CMakeLists.txt", "  rdma/rdma_user_rxe.h\n",
             "  rdma/vroce-abi.h\n")):
        text = (source / name).read_text()
        if old not in text:
            raise UserError(f"rdma-core {version}: {name} has no '{old.strip()}' "
                            "to put the provider next to")
        (source / name).write_text(text.replace(old, old + new))
    (tree / "prepared").touch()


def _copy(old, new):
    """Copy a file with its time, if it differs."""
    new.parent.mkdir(parents=True, exist_ok=True)
    if not new.exists() or new.stat().st_mtime_ns != old.stat().st_mtime_ns:
        shutil.copy2(old, new)


def _deliver(built, folder="."):
    """Put a result where guests see it, unless it is there already."""
    final = artifacts_dir() / folder / built.name
    if not final.exists() or not filecmp.cmp(built, final, shallow=False):
        with scratch("artifact") as temporary:
            shutil.copy2(built, temporary / built.name)
            publish(temporary / built.name, final)
        say(f"new: {final}")
    return final
