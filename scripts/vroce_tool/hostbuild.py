# SPDX-License-Identifier: GPL-2.0-or-later
"""What meson builds of the checkout for the host: the engine and its tests.

Each way to build has a folder of its own in the cache, for each checkout,
since meson remembers its sources by their path.
"""

from . import util
from .util import REPO, cache_dir, digest, run

# A test that passes by luck is none.
SANITIZED = ("-Db_sanitize=address,undefined", "-Db_lundef=false")
RELEASE = ("--buildtype=release",)
# As QEMU builds the engine, with what callgrind tells functions by.
PROFILED = ("--buildtype=debugoptimized",)
_NAMES = {SANITIZED: "host", RELEASE: "release", PROFILED: "profiled"}


def folder(options):
    """Where meson builds with those options."""
    return cache_dir() / "build" / f"{_NAMES[options]}-{digest(str(REPO))}"


def configure(options):
    """Make that folder ready for ninja and meson; returns it."""
    path = folder(options)
    if not (path / "build.ninja").exists():
        run(["meson", "setup", *options, path, REPO], what="meson setup")
    return path


def build(options, *targets, what):
    """Bring targets up to date, of which what is said; returns the folder."""
    with util.lock(folder(options).name):
        path = configure(options)
        run(["ninja", "-C", path, *targets], what=f"building {what}")
    return path
