# SPDX-License-Identifier: GPL-2.0-or-later
"""The command `vroce setup`: all that a lab needs, made when it is missing."""

from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import NamedTuple

from . import guestbuild, hostpkgs, images, qemu
from .aptroot import AptRoot
from .util import Command, step, stop_children


class Artifacts(NamedTuple):
    """What labs and tests use; all paths are in the cache."""
    qemu: Path              # qemu-system-x86_64
    qemu_build: Path        # its build folder, with the qtests
    firmware_dirs: list     # for QEMU's -L
    kernel: Path            # vmlinux, which QEMU boots by PVH
    initrd: Path
    image: Path             # raw, read-only for QEMU
    ssh: Path               # folder with id_ed25519 and known_hosts
    artifacts: Path         # the guests' /artifacts


def planned():
    """The Artifacts as ensure() will return them; does nothing."""
    guest = images.guest_dir()
    return Artifacts(qemu.binary(), qemu.build_dir(), [qemu.firmware_dir()],
                     guest / "vmlinux", guest / "initrd.img",
                     guest / "disk.img", images.ssh_dir(),
                     guestbuild.artifacts_dir())


def ensure(yes=False, qemu_src=None, refresh=False):
    """Make what is missing or stale; returns the Artifacts.

    QEMU, which keeps the processors busy, and the images, which mostly wait
    for the network, are made at the same time.
    """
    hostpkgs.ensure(yes)
    apt = AptRoot(refresh)
    tree = qemu.Tree(apt, source=qemu_src)
    guest = images.Images(apt)
    if guest.stale() or not qemu.binary().exists() or refresh:
        apt.prepare()

    def make_qemu():
        qemu.ensure_firmware(apt)
        tree.make()

    def make_guest():
        guest.ensure()
        guestbuild.build_all()

    with ThreadPoolExecutor(2) as pool:
        jobs = [pool.submit(make_qemu), pool.submit(make_guest)]
        try:
            for job in as_completed(jobs):
                job.result()
        except BaseException:
            # The other one's work is not lost, but we do not wait for it.
            stop_children()
            raise
    return planned()


def _dry_run(args):
    names = hostpkgs.missing()
    print("host packages to install:", " ".join(names) or "none")
    apt = AptRoot(args.refresh)
    tree = qemu.Tree(apt, source=args.qemu_src)
    print("QEMU:", tree.plan())
    print("images to make:", " ".join(images.Images(apt).stale()) or "none")
    print("driver, provider, tests: what changed since the last build")
    for name, path in planned()._asdict().items():
        print(f"{name}: {path}")


def add_arguments(parser):
    parser.add_argument("--yes", "-y", action="store_true",
                        help="install missing host packages without asking")
    parser.add_argument("--qemu-src", metavar="DIR",
                        help="build from this QEMU source tree instead of "
                        "Debian's source package")
    parser.add_argument("--refresh", action="store_true",
                        help="take what the mirror has now: a newer kernel, "
                        "newer packages, a newer QEMU; without it, what was "
                        "made once stays as it is")
    parser.add_argument("--dry-run", action="store_true",
                        help="say what would be done, and do nothing")


def run(args):
    if args.dry_run:
        return _dry_run(args)
    with step("set-up"):
        ensure(args.yes, args.qemu_src, args.refresh)


COMMANDS = [
    Command("setup", "build or refresh all that a lab needs", add_arguments,
            run, "Install missing Debian packages, build QEMU with the card, "
            "the guest's image, the driver and the provider.  Everything is "
            "incremental: what is up to date stays."),
]
