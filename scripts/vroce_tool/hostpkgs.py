# SPDX-License-Identifier: GPL-2.0-or-later
"""The host's Debian packages: which are missing, and installing them."""

import os
import shlex
import subprocess
import sys

from .util import UserError, say

PACKAGES = """
gcc libc6-dev make ninja-build pkgconf patch python3 python3-venv
python3-distlib meson
libdeflate-dev libglib2.0-dev libslirp-dev libvdeplug-dev zlib1g-dev
dpkg-dev xz-utils mmdebstrap debian-archive-keyring e2fsprogs uidmap
openssh-client vde2 tshark python3-scapy
clang libclang-rt-dev
""".split()


def missing(packages=tuple(PACKAGES)):
    """Those of the packages that are not installed."""
    query = subprocess.run(
        ["dpkg-query", "-W", "-f", "${Package} ${db:Status-Status}\n",
         *packages], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        text=True, check=False)
    installed = {line.split()[0] for line in query.stdout.splitlines()
                 if line.endswith(" installed")}
    return [name for name in packages if name not in installed]


def ensure(yes, packages=tuple(PACKAGES)):
    """Install what is missing; asks first on a terminal, unless yes."""
    names = missing(packages)
    if not names:
        return
    say("missing Debian packages: " + " ".join(names))
    sudo = [] if os.geteuid() == 0 else ["sudo"]
    install = [*sudo, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-q",
               "-y", "-o", "DPkg::Lock::Timeout=300",
               "--no-install-recommends", "install", *names]
    if not yes and sys.stdin.isatty():
        answer = input("Install them now? [Y/n] ").strip().lower()
        if answer not in ("", "y", "yes"):
            raise UserError("they are needed; install them with\n  " +
                            shlex.join(install))
    # In the foreground and in our process group: sudo may ask for a password.
    _run([*sudo, "apt-get", "-q", "update"])
    _run(install)
    names = missing(packages)
    if names:
        raise UserError("still not installed: " + " ".join(names))


def _run(command):
    try:
        status = subprocess.run(command, check=False,
                                stdout=sys.stderr).returncode
    except FileNotFoundError:
        raise UserError(f"{command[0]} is not there: this needs Debian 12 or "
                        "13, as root or as a user with sudo") from None
    if status:
        raise UserError(f"{shlex.join(command)} failed (exit status {status}): "
                        "see its message above.  A package that cannot be "
                        "located is in Debian's 'main' of releases 12 and 13")
