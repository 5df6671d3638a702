# SPDX-License-Identifier: GPL-2.0-or-later
"""The guest's image and the build root, from the recipes in images/.

Three things, each kept in the cache under a key of what it is made from:
images/guest-root (packages and kernel), images/build-root (a copy of that
with compilers, so that versions match), images/guest (what QEMU boots).
"""

from . import rootns, util
from .aptroot import SUITE, proxy_options
from .util import REPO, cache_dir, digest, publish, run, scratch, step

RECIPES = REPO / "images"
HOST_KEY_ALIAS = "vroce-guest"


def _folder(name):
    return cache_dir() / "images" / name


def guest_dir():
    """Where vmlinux, initrd.img and disk.img (raw) are."""
    return _folder("guest")


def build_root():
    """The root file system in which driver, provider and tests are built."""
    return _folder("build-root") / "root"


def ssh_dir():
    """The keys: id_ed25519 for the guests' root, and known_hosts."""
    return cache_dir() / "ssh"


def kernel_release():
    """The release of the guests' kernel, as uname -r says it."""
    file = build_root() / "usr/lib/vroce/kernel-release"
    return file.read_text().strip()


def packages(name):
    """The package names in a recipe's list."""
    lines = (RECIPES / f"{name}.packages").read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


class Images:
    """Makes what is missing or stale; refresh makes everything anew."""

    def __init__(self, apt):
        self.apt = apt
        self.log = cache_dir() / "images" / "build.log"
        parts = [SUITE, *(RECIPES / name for name in
                          ("guest.packages", "add-kernel"))]
        self.guest_root_key = digest(*parts)
        self.build_root_key = digest(
            self.guest_root_key, RECIPES / "build.packages",
            RECIPES / "make-build-root")
        self.guest_key = digest(
            self.build_root_key, *(RECIPES / name for name in
                                   ("guest.modules", "make-guest", "guest",
                                    "initramfs")))

    def stages(self):
        """(name, key, function that fills an empty folder), in order."""
        return [("guest-root", self.guest_root_key, self._make_guest_root),
                ("build-root", self.build_root_key, self._make_build_root),
                ("guest", self.guest_key, self._make_guest)]

    def stale(self):
        """The names of the stages that ensure() would make."""
        return [name for name, key, _ in self.stages()
                if self.apt.refresh or _key_of(name) != key]

    def ensure(self):
        """Make the stages that are missing or stale."""
        with util.lock("images"):
            stale = self.stale()
            if not stale:
                return
            rootns.require_root()
            util.require_space(4, "making the guest's image")
            self.log.parent.mkdir(exist_ok=True)
            self.log.write_text("")
            _ensure_keys()
            for name, key, make in self.stages():
                if name in stale:
                    with scratch(name) as folder:
                        make(folder)
                        (folder / "key").write_text(key)
                        publish(folder, _folder(name))

    def _make_guest_root(self, folder):
        self.apt.prepare()
        tar = folder / "root.tar"
        options = [f"--aptopt={line}" for line in proxy_options()]
        # An interrupted build is thrown away: no need to wait for the disk.
        options.append("--dpkgopt=force-unsafe-io")
        for rule in ("exclude=/usr/share/man/*", "exclude=/usr/share/locale/*",
                     "exclude=/usr/share/doc/*",
                     # pyverbs' tests
                     "include=/usr/share/doc/rdma-core*"):
            options.append(f"--dpkgopt=path-{rule}")
        with step("installing the guest's packages") as progress:
            run(["mmdebstrap", "--variant=minbase", "--skip=cleanup/apt/lists",
                 '--aptopt=APT::Install-Recommends "false"', *options,
                 "--include=" + ",".join(packages("guest")), SUITE, tar,
                 self.apt.sources_file], log=self.log,
                what="making the guest's root", on_line=progress.apt)
            root = folder / "root"
            root.mkdir()
            run(rootns.as_root(["tar", "-xf", tar, "-C", root, "--numeric-owner",
                                "--exclude=./dev/*"]), log=self.log)
            tar.unlink()
            self._in_root(root, "add-kernel")

    def _make_build_root(self, folder):
        with step("installing the build root's packages") as progress:
            self._copy(_folder("guest-root") / "root", folder / "root")
            self._in_root(folder / "root", "make-build-root",
                          *packages("build"), on_line=progress.apt)

    def _make_guest(self, folder):
        with step("making the guest's image"), scratch("root") as temporary:
            root = temporary / "root"
            self._copy(_folder("guest-root") / "root", root)
            run(rootns.as_root([RECIPES / "make-guest", root,
                                build_root() / "boot/vmlinux", ssh_dir(),
                                folder]),
                log=self.log, what="making the guest's image")

    def _copy(self, old, new):
        run(rootns.as_root(["cp", "-a", "--reflink=auto", old, new]),
            log=self.log)

    def _in_root(self, root, recipe, *arguments, on_line=None):
        run(rootns.in_root(root, [f"/recipes/{recipe}", *arguments],
                           [(RECIPES, "/recipes")]),
            log=self.log, what=f"images/{recipe}", on_line=on_line,
            hint="if it is the mirror: try again later, with --refresh")


def _key_of(name):
    file = _folder(name) / "key"
    return file.read_text() if file.exists() else None


def _ensure_keys():
    """Make the ssh keys once: an image made later must fit running labs."""
    final = ssh_dir()
    if final.exists():
        return
    with scratch("ssh") as folder:
        keys = folder / "ssh"
        keys.mkdir(mode=0o700)
        for name in ("id_ed25519", "host_ed25519"):
            run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "vroce",
                 "-f", keys / name])
        public = (keys / "host_ed25519.pub").read_text()
        (keys / "known_hosts").write_text(f"{HOST_KEY_ALIAS} {public}")
        publish(keys, final)
