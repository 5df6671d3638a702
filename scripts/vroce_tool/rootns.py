# SPDX-License-Identifier: GPL-2.0-or-later
"""Programs that need to be root: as root, or in a user namespace of one's own.

They get their own mount and process namespaces too, so that an interruption
leaves neither a mount nor a process behind.
"""

import functools
import getpass
import os
import subprocess

from .util import UserError

_NAMESPACES = ["unshare", "--mount", "--pid", "--fork", "--kill-child"]
_USER_NAMESPACE = ["--map-root-user", "--map-auto"]

# $1 is the root; pairs of folder and mount point follow until "--".
_ENTER_CHROOT = r"""
set -e
root=$1; shift
mount --make-rprivate /
mount --rbind /dev "$root/dev"
mount -t proc proc "$root/proc"
mount -t tmpfs tmpfs "$root/tmp"
if [ -e /etc/resolv.conf ]; then
    touch "$root/etc/resolv.conf"
    mount --bind "$(readlink -f /etc/resolv.conf)" "$root/etc/resolv.conf"
fi
while [ "$1" != -- ]; do
    mkdir -p "$root$2"
    mount --bind "$1" "$root$2"
    shift 2
done
shift
exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 \
    TERM=dumb DEBIAN_FRONTEND=noninteractive chroot "$root" "$@"
"""


@functools.lru_cache(None)
def require_root():
    """Raise UserError unless as_root() can work here."""
    if os.geteuid() == 0:
        return
    probe = subprocess.run(as_root(["true"]), check=False, text=True,
                           stdin=subprocess.DEVNULL, capture_output=True)
    if probe.returncode:
        user = getpass.getuser()
        raise UserError(
            "building an image needs root or a user namespace with "
            f"subordinate ids, and neither works here: {probe.stderr.strip()}"
            "\n  as root, or once: sudo apt-get install uidmap && sudo "
            f"usermod --add-subuids 100000-165535 --add-subgids "
            f"100000-165535 {user}")


def as_root(command):
    """The command line that runs a command as root over the cache's roots."""
    user = [] if os.geteuid() == 0 else _USER_NAMESPACE
    return [*_NAMESPACES, *user, "--", *map(str, command)]


def in_root(root, command, binds=()):
    """The command line that runs a command by chroot in root.

    binds: pairs (folder of the host, path in the root).
    """
    pairs = [str(word) for pair in binds for word in pair]
    return as_root(["sh", "-c", _ENTER_CHROOT, "sh", root, *pairs, "--",
                    *command])
