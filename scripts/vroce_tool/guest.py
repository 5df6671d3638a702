# SPDX-License-Identifier: GPL-2.0-or-later
"""One guest: the QEMU command that boots it, and the ssh way into it."""

import contextlib
import ipaddress
import itertools
import os
import shlex
import subprocess
from pathlib import Path

from . import wire
from .labstate import refuse_if_stopped
from .oops import console_tail
from .qmp import QMP
from .util import REPO, UserError, lab_option

CARD = "card"       # the guest has the vroce card
RXE = "rxe"         # the guest has a virtio NIC and soft-RoCE on it

# What slirp expects behind its first forwarded port.
SLIRP_ADDRESS = "10.0.2.15/24"

# Where the shares are mounted in a guest.
SHARES = {"vroce": "/vroce", "artifacts": "/artifacts"}
SCRIPTS = "/vroce/scripts/vroce_tool/in_guest"

# How long a program may take to end before it is killed, in tenths of a second.
GRACE_TENTHS = 20
# Where the guest keeps what a Remote has to know of its program.
RUN = "/run"

_serial = itertools.count()


def choose_accel(wanted):
    """'kvm' or 'tcg' for auto, tcg or kvm.

    On a nested hypervisor /dev/kvm may open, and even create a machine, where
    a guest then hangs at its first instruction: the processor flag tells.
    """
    if wanted == "tcg":
        return "tcg"
    reason = None
    try:
        os.close(os.open("/dev/kvm", os.O_RDWR | os.O_CLOEXEC))
    except OSError as error:
        reason = f"/dev/kvm: {error.strerror}"
    if wanted == "kvm":
        if reason:
            raise UserError(f"--accel kvm is not possible here: {reason}; "
                            "use --accel tcg")
        return "kvm"
    flags = Path("/proc/cpuinfo").read_text().split()
    return "kvm" if not reason and {"vmx", "svm"} & set(flags) else "tcg"


class Guest:
    """A guest of a lab; number counts from 1.

    folder holds the lab's sockets, logs its log files.  ssh_port is known once
    QEMU runs; ssh is the folder with the key that the guest's root accepts
    (id_ed25519) and the guest's host key (known_hosts).
    """

    def __init__(self, number, mode, folder, logs, ssh_port=None, ssh=None):
        self.number = number
        self.mode = mode
        self.folder = Path(folder)
        self.logs = Path(logs)
        self.ssh_port = ssh_port
        self.ssh = ssh

    @property
    def name(self):
        return f"guest{self.number}"

    @property
    def ipv4(self):
        return wire.ipv4(self.number)

    @property
    def ipv6(self):
        return wire.ipv6(self.number)

    def path(self, name):
        """Where this guest's socket of that name is."""
        return self.folder / f"{self.number}-{name}"

    def log(self, name):
        """Where this guest's log of that name is: console, qemu, ready."""
        return self.logs / f"{self.number}-{name}.log"

    # ------------------------------------------------------------ starting

    def qemu_command(self, options, artifacts, netdev):
        """The words of the QEMU command; options as `vroce up` has them."""
        memory = f"{options.memory}M"
        command = [artifacts.qemu]
        for folder in artifacts.firmware_dirs:
            command += ["-L", folder]
        command += [
            "-name", f"vroce-{options.lab}-{self.number}",
            "-nodefaults", "-no-user-config", "-display", "none",
            "-machine", "q35,memory-backend=ram,usb=off,vmport=off",
            # With ACPI's hot-plug a root port never says that its link is up,
            # and recovery from an error of the bus waits for that.
            "-global", "ICH9-LPC.acpi-pci-hotplug-with-bridge-support=off",
            "-object", f"memory-backend-memfd,id=ram,size={memory},share=on",
            "-m", memory, "-smp", str(options.cpus)]
        if options.accel == "kvm":
            command += ["-accel", "kvm", "-cpu", "host"]
        else:
            command += ["-accel", "tcg,thread=multi", "-cpu", "max"]
        if options.iommu:
            command += ["-device", "intel-iommu"]
        command += self._boot(options, artifacts)
        command += self._nics(options, netdev)
        command += self._shares(artifacts)
        command += self._channels(options)
        return [str(word) for word in command + (options.qemu_arg or [])]

    def _boot(self, options, artifacts):
        # images/README.md says what the guest makes of these words.
        mac = wire.mac(self.number)
        append = ["console=ttyS0", "loglevel=5", f"vroce.guest={self.number}",
                  f"vroce.net={wire.management_mac(self.number)},"
                  f"{SLIRP_ADDRESS}",
                  f"vroce.net={mac},{self.ipv4}/24,{self.ipv6}/64,"
                  f"mtu={wire.MTU}"]
        if options.accel == "tcg":
            # An emulator does not speculate: counter-measures only cost time.
            # On a busy host its timer may be late when the kernel tests it,
            # and the kernel would panic ("IO-APIC + timer doesn't work").
            append += ["mitigations=off", "no_timer_check"]
        if self.mode == RXE:
            append += [f"vroce.rxe={mac}", "vroce.module=0"]
        if options.iommu:
            # Strict: what is unmapped is out of the device's reach at once.
            append += ["intel_iommu=on", "iommu.strict=1"]
        append += options.append or []
        return ["-kernel", artifacts.kernel, "-initrd", artifacts.initrd,
                "-append", " ".join(append),
                "-drive", "if=none,id=root,format=raw,snapshot=on,file="
                + _escape(artifacts.image),
                "-device", "virtio-blk-pci,drive=root",
                "-device", "virtio-rng-pci"]

    def _nics(self, options, netdev):
        words = ["-netdev", "user,id=management,hostfwd=tcp:127.0.0.1:0-:22",
                 "-device", "virtio-net-pci,netdev=management,romfile=,mac="
                 + wire.management_mac(self.number),
                 "-netdev", netdev]
        mac = wire.mac(self.number)
        if self.mode == RXE:
            words += ["-device", "virtio-net-pci,netdev=wire,romfile=,"
                      f"host_mtu={wire.MTU},mac={mac}"]
        else:
            properties = "".join(f",{word}" for word in options.card or [])
            words += ["-device", "pcie-root-port,id=slot1,chassis=1,slot=1",
                      "-device", "vroce,id=card,bus=slot1,netdev=wire,"
                      f"mac={mac}{properties}"]
        if self.number == 1 and options.capture:
            # Every frame of the wire passes guest 1's end of it.  Whole
            # frames: tshark does not decode truncated RoCEv2.
            words += ["-object", "filter-dump,id=capture,netdev=wire,file="
                      + _escape(self.logs / "wire.pcap")]
        return words

    @staticmethod
    def _shares(artifacts):
        words = []
        for tag, folder, access in (("vroce", REPO, "readonly=on"),
                                    ("artifacts", artifacts.artifacts,
                                     "readonly=off")):
            words += ["-fsdev", f"local,id={tag},security_model=none,{access},"
                      f"multidevs=remap,path={_escape(folder)}",
                      "-device", f"virtio-9p-pci,fsdev={tag},mount_tag={tag}"]
        return words

    def _channels(self, options):
        words = ["-device", "virtio-serial-pci",
                 "-chardev", f"file,id=ready,path={_escape(self.log('ready'))}",
                 "-device", "virtserialport,chardev=ready,name=vroce.ready",
                 "-chardev", "socket,id=console,server=on,wait=off,"
                 f"path={_escape(self.path('console.sock'))},"
                 f"logfile={_escape(self.log('console'))}",
                 "-serial", "chardev:console"]
        for name in ("qmp", "monitor"):
            words += ["-qmp", "unix:server=on,wait=off,path="
                      + _escape(self.path(f"{name}.sock"))]
        words += ["-chardev", f"socket,id=control,fd={wire.CONTROL_FD}",
                  "-mon", "chardev=control,mode=control"]
        words += ["-d", "guest_errors", "-D", self.log("device")]
        for pattern in options.trace or []:
            words += ["-trace", _escape(pattern)]
        return words

    # ------------------------------------------------------------- talking

    def qmp(self):
        """A connection to this guest's QEMU, for the tool's own use."""
        return QMP(self.path("qmp.sock"))

    def find_ssh_port(self):
        """The port of 127.0.0.1 that slirp chose for the guest's port 22."""
        with self.qmp() as qmp:
            for line in qmp.human("info usernet").splitlines():
                words = line.split()
                if words and words[0] == "TCP[HOST_FORWARD]":
                    return int(words[3])
        raise UserError(f"QEMU of guest {self.number} forwards no port for ssh")

    def ssh_command(self, command=None, tty=False):
        """The words that run a shell command line, or a shell, in the guest."""
        words = ["ssh", "-F", "none", "-p", str(self.ssh_port),
                 "-i", f"{self.ssh}/id_ed25519"]
        for option in ("IdentitiesOnly=yes", "LogLevel=ERROR",
                       f"UserKnownHostsFile={self.ssh}/known_hosts",
                       "HostKeyAlias=vroce-guest",
                       "StrictHostKeyChecking=yes", "ConnectTimeout=20",
                       "ServerAliveInterval=30", "ServerAliveCountMax=10",
                       "Ciphers=chacha20-poly1305@openssh.com",
                       "ControlMaster=auto", "ControlPersist=yes",
                       f"ControlPath={self.path('ssh')}"):
            words += ["-o", option]
        # "--": or it takes a command's first "-x" for an option of its own.
        words += ["-t" if tty else "-T", "--", "root@127.0.0.1"]
        return words + ([command] if command is not None else [])

    def connect(self):
        """Open the connection that later ssh commands share."""
        self._refuse_if_panicked()
        # The master keeps its standard streams open: give it none of ours.
        result = subprocess.run(self.ssh_command("true"), text=True,
                                stdin=subprocess.DEVNULL,
                                stdout=subprocess.DEVNULL,
                                stderr=subprocess.PIPE, check=False)
        if result.returncode:
            raise UserError(f"guest {self.number} does not let us in by ssh: "
                            f"{result.stderr.strip() or result.returncode}")

    def _refuse_if_panicked(self):
        """Raise UserError, rather than wait, when its kernel has given up."""
        # It is the last that it says, unless it was reset since.
        for line in console_tail(self, 3).splitlines():
            if "Kernel panic - not syncing" in line:
                raise UserError(
                    f"guest {self.number} has panicked: {line.strip(' |')}; "
                    f"'vroce boot --kill{lab_option(self.folder.name)} "
                    f"{self.number}' boots it again")

    def run(self, command, *, timeout=60, stdin="", check=True):
        """Run a shell command line; returns subprocess's CompletedProcess.

        Output is text, stdout and stderr apart.  With check, failure raises
        UserError with the command's own message.
        """
        try:
            result = subprocess.run(
                self.ssh_command(command), input=stdin, capture_output=True,
                text=True, errors="replace", timeout=timeout, check=False)
        except subprocess.TimeoutExpired:
            self._refuse_if_panicked()
            refuse_if_stopped(self.folder)
            raise UserError(f"guest {self.number}: '{command}' did not end in "
                            f"{timeout} s") from None
        if check and result.returncode:
            tail = (result.stderr.strip() or result.stdout.strip())[-2000:]
            raise UserError(f"guest {self.number}: '{command}' failed (exit "
                            f"status {result.returncode}): {tail}")
        return result

    def rdma(self, address=None):
        """The RDMA device on the wire: {"dev": name, "gid": index, "netdev"}.

        gid is the index of the RoCEv2 GID of an address (default: the wire's
        IPv4 address).
        """
        address = ipaddress.ip_address(address or self.ipv4)
        if address.version == 4:
            address = ipaddress.IPv6Address(f"::ffff:{address}")
        result = self.run(f"{SCRIPTS}/rdma-info {wire.mac(self.number)} "
                          f"{address.exploded}")
        return dict(word.split("=", 1) for word in result.stdout.split())


class Remote:
    """A shell command line that can be ended in the guest.

    line is what to give to ssh.  The end of an ssh session does not end its
    program, which notices at best that nobody reads its output.
    """

    def __init__(self, guest, command):
        self.guest = guest
        self.file = f"{RUN}/vroce.{os.getpid()}.{next(_serial)}"
        # sshd makes the shell the leader of a process group.
        self.line = (f"echo $$ > {self.file}; trap 'rm -f {self.file}' EXIT\n"
                     + command)

    def end(self):
        """End it and all of its process group, if it has not ended."""
        # In a guest that has panicked or stands still nothing would happen.
        with contextlib.suppress(UserError):
            refuse_if_stopped(self.guest.folder)
            # The leader removes the file when it ends: the others may go on.
            self.guest.run(
                f"{{ read -r pid < {self.file} && kill -- -$pid && "
                f"for _ in $(seq {GRACE_TENTHS}); do "
                "kill -0 -- -$pid || break; sleep 0.1; done && "
                f"kill -KILL -- -$pid; rm -f {self.file}; }} 2> /dev/null",
                check=False, timeout=20)


def shell_words(words):
    """One shell command line from a command's words: a single word is one."""
    return words[0] if len(words) == 1 else shlex.join(words)


def _escape(value):
    """A value inside a comma-separated QEMU option."""
    return str(value).replace(",", ",,")
