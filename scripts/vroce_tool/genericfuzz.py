# SPDX-License-Identifier: GPL-2.0-or-later
"""QEMU's generic fuzzer on the card: registers, doorbells, interrupts and DMA.

Two cards share a hub, so that what one is made to send reaches the other.
The fuzzer writes to all registers of both, and fills what the cards read
from guest memory with patterns of the input.  It starts from a few inputs
that bring a card up, since no random byte finds the rings.
"""

import re
import shlex
import shutil
import struct
import subprocess

from . import aptroot, qemu
from .util import UserError, cache_dir, finish, scratch, start

# Small tables: every input ends with a reset.
_LIMITS = ("num-qps=64,num-cqs=64,num-mrs=64,num-pds=16,num-srqs=16,"
           "num-eqs=8,num-contexts=4,num-gids=8,num-pages=4096")
_OBJECTS = "vroce*"
_TARGET = "--fuzz-target=generic-fuzz"
_SEPARATOR = b"FUZZ"
_MAX_LEN = 4096
# A report takes a minute to write when the machine is busy.
_GRACE = 600

# Operations of QEMU's tests/qtest/fuzz/generic_fuzz.c, and sizes of a write.
_WRITE, _PATTERN, _CLEAR_PATTERNS = 3, 7, 8
_LONG, _QUAD = 2, 3
# A card's regions as they follow each other in memory: registers, MSI-X table
# and pending bits, doorbells.
_CARDS, _REGISTERS, _DOORBELLS = (0, 4), 0, 3

# Of vroce_hw.h: what brings a card up, and a QP that talks to itself.
_REG_CTRL, _REG_SQ_BASE, _REG_CQ_BASE = 0x00c, 0x100, 0x108
_REG_LOG_SIZE, _REG_DOORBELL = 0x110, 0x118
_DB_SQ = 1 << 56
_QPN, _KEY = 2, 0x101           # the first that are given out
_WQE = struct.pack("<BBBBHHIIQQ", 4, 9, 1, 0, 0, 16, 0, 0, 7, 0) + \
    struct.pack("<QII16s", 0, _KEY, 0, b"0123456789abcdef")     # WRITE, inline


def _gid(card):
    return bytes(10) + b"\xff\xff\x0a\0\0" + bytes([card + 1])


def _mac(card):
    return b"\x52\x54\0\0\0" + bytes([card])


def _buf(addr, length):
    """A struct vroce_buf of one piece."""
    return struct.pack("<QQIBBxx", addr, length, 0, 0, 0)


def _modify(state, mask, peer):
    """A struct vroce_modify_qp_in."""
    return struct.pack("<II12B5IHH", _QPN, mask,
                       state, 0, 3, 1, 14, 7, 7, 12, 1, 1, 0, 0,
                       0xf, 0, 0, 0, _QPN, 0, 0) + \
        struct.pack("<16s6sHIBBBxH6x12x", _gid(peer), _mac(peer), 0, 0, 0, 64,
                    0, 0)


def _commands(card, peer):
    """Opcodes and inputs: a QP in RTS whose peer is the QP of card peer."""
    return [
        (0x0a, b""),                                            # ALLOC_PD
        (0x10, _buf(0x200000, 4096) + struct.pack("<IBBxx", 0, 3, 1)),
        (0x18, _buf(0x210000, 4096) +                           # CREATE_CQ
         struct.pack("<IIIBxxx", 2048, 0, 0xffffffff, 3)),
        (0x28, _buf(0x220000, 8192) +                           # CREATE_QP
         struct.pack("<IIIIIIIIBBBBI", 0, 4096, 2048, 0, 1, 1, 1, 0xffffffff,
                     0, 3, 3, 5, 0)),
        (0x30, _buf(0x230000, 65536) +                          # CREATE_MR
         struct.pack("<QIIB3xI", 0, 1, 7, 0, 0)),
        (0x38, struct.pack("<16s6sHIBxxx", _gid(card), _mac(card), 0xffff, 0,
                           1)),                                 # SET_GID
        (0x2a, _modify(1, 0x39, peer)),                         # to INIT
        (0x2a, _modify(2, 0x129181, peer)),                     # to RTR
        (0x2a, _modify(3, 0x12e01, peer)),                      # to RTS
    ]


def _write(region, offset, value, size=_LONG):
    """One write; region: index in the memory map of what is fuzzed."""
    return struct.pack("<BBBxxIQ", _WRITE, size, region, offset, value)


def _pattern(data):
    """What the card's next read finds in memory."""
    return struct.pack("<BBB", _PATTERN, 0, 0) + data


def _bring_up(card, peer):
    """Operations, one list for each step."""
    registers = card + _REGISTERS
    yield [_write(registers, _REG_SQ_BASE, 0x100000, _QUAD),
           _write(registers, _REG_CQ_BASE, 0x110000, _QUAD),
           _write(registers, _REG_LOG_SIZE, 4),
           _write(registers, _REG_CTRL, 1)]
    for number, (opcode, data) in enumerate(_commands(card, peer), 1):
        command = struct.pack("<BBHIQIIQ", opcode, 0, number, len(data),
                              0x120000, 512, 0, 0x130000)
        yield [bytes([_CLEAR_PATTERNS]), _pattern(command),
               *([_pattern(data)] if data else []),
               _write(registers, _REG_DOORBELL, number)]


def _post(card):
    return [bytes([_CLEAR_PATTERNS]), _pattern(_WQE),
            _write(card + _DOORBELLS, 0, _DB_SQ | _QPN << 32 | 1, _QUAD)]


def _seeds():
    """The first inputs: a card is brought up, by one more step in each."""
    for card in _CARDS:
        operations = []
        for step in [*_bring_up(card, card), _post(card)]:
            operations += step
            yield _SEPARATOR.join(operations)
    first, second = _CARDS
    yield _SEPARATOR.join(sum([*_bring_up(first, second),
                               *_bring_up(second, first), _post(first)], []))


def _command(program, folder, seconds):
    return [program, _TARGET,
            f"-max_total_time={seconds}", f"-max_len={_MAX_LEN}",
            "-timeout=60", "-rss_limit_mb=4096", "-print_final_stats=1",
            "-detect_leaks=0", f"-artifact_prefix={folder}/finding-",
            folder / "corpus"]


def _environment(firmware):
    nics = " ".join(f"-netdev hubport,id=port{n},hubid=0 "
                    f"-device vroce,id=card{n},netdev=port{n},{_LIMITS}"
                    for n in (1, 2))
    return [f"QEMU_FUZZ_ARGS=-M q35 -nodefaults -L {firmware} {nics}",
            f"QEMU_FUZZ_OBJECTS={_OBJECTS}",
            "ASAN_OPTIONS=detect_leaks=0", "UBSAN_OPTIONS=print_stacktrace=1"]


def build():
    """The fuzzer's program, built if need be."""
    tree = qemu.Tree(aptroot.AptRoot(), "sanitized")
    tree.make((qemu.TARGET, qemu.QTEST, qemu.FUZZER))
    return tree.build / qemu.FUZZER


def run(seconds):
    """Fuzz for so long; return (executions, what was found, as text).

    The text is empty when nothing was found.
    """
    program = build()
    with scratch("generic-fuzz") as folder:
        (folder / "corpus").mkdir()
        for number, seed in enumerate(_seeds()):
            (folder / "corpus" / f"seed-{number}").write_bytes(seed)
        status, output = _fuzz(program, folder, seconds)
        findings = sorted(folder.glob("finding-*"))
        count = re.search(r"number_of_executed_units:\s*(\d+)", output)
        # What QEMU's other devices do is not our matter.
        undefined = re.search(r"hw/net/vroce\S*: runtime error: ", output)
        if status == 0 and count and not findings and not undefined:
            return int(count[1]), ""
        done = count or re.search(r"(?s:.*)^#(\d+)\s", output, re.MULTILINE)
        return int(done[1]) if done else 0, _describe(output, undefined,
                                                      findings)


def _fuzz(program, folder, seconds):
    """Run the fuzzer; return its exit status and what it printed."""
    command = ["env", *_environment(qemu.firmware_dir()),
               *_command(program, folder, seconds)]
    child = start([str(word) for word in command], stdin=subprocess.DEVNULL,
                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                  errors="replace")
    try:
        output = child.communicate(timeout=seconds + _GRACE)[0]
    except subprocess.TimeoutExpired:
        raise UserError(f"the fuzzer did not end {_GRACE} s after its "
                        f"{seconds} s: {shlex.join(map(str, command))}"
                        ) from None
    finally:
        finish(child)
    return child.returncode, output


def _describe(output, undefined, findings):
    """What a person needs to repeat and mend it; keeps it in the cache."""
    folder = cache_dir() / "generic-fuzz"
    folder.mkdir(exist_ok=True)
    (folder / "output").write_text(output)
    for path in findings:
        shutil.copy(path, folder)
    lines = output[undefined.start():].splitlines()[:30] if undefined else []
    return "\n".join([
        *lines, "the end of the fuzzer's output:",
        *output.rstrip().splitlines()[-40:],
        f"all of it and {len(findings)} inputs are in {folder}; to repeat one:",
        shlex.join(["env", *_environment(qemu.firmware_dir()),
                    str(qemu.build_dir("sanitized") / qemu.FUZZER),
                    _TARGET, str(folder / findings[0].name) if findings
                    else "INPUT"])])
