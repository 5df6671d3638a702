#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Does the relay do to frames what it is told, and nothing else? Prints TAP.

    check_relay.py RELAY
"""

import contextlib
import json
import select
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HEADER = b"\2\0\0\0\0\1\2\0\0\0\0\2\x08\0"
ARP_HEADER = HEADER[:12] + b"\x08\6"
# For hangs: nothing here depends on how fast the machine is.
PATIENCE_SECONDS = 100
POLL_SECONDS = 0.005


def frame(number, length=100, header=HEADER):
    return (header + number.to_bytes(4, "big")).ljust(length, b"\x55")


def number(data):
    return int.from_bytes(data[14:18], "big")


class Relay:
    """A running relay; ends[0] and ends[1] are where the guests would be."""

    def __init__(self, *sets):
        self.folder = tempfile.TemporaryDirectory(prefix="vroce-relay-")
        pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
                 for _ in range(2)]
        self.ends = [near for near, _far in pairs]
        self.sent = [0, 0]      # since a set began the direction anew
        fds = [far.fileno() for _near, far in pairs]
        self.path = f"{self.folder.name}/control"
        self.process = subprocess.Popen(
            [sys.argv[1], *map(str, fds), self.path, *sets], pass_fds=fds)
        for _near, far in pairs:
            far.close()
        self.control = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.control.bind("")
        self.control.settimeout(20)
        while not Path(self.path).exists():
            assert self.process.poll() is None, "the relay ended"
            time.sleep(0.01)

    def __enter__(self):
        return self

    def __exit__(self, *_exception):
        self.process.terminate()
        status = self.process.wait()
        self.control.close()
        for end in self.ends:
            end.close()
        self.folder.cleanup()
        # A sanitizer's report ends it with another status.
        assert status == -15, f"the relay ended with status {status}"

    def ask(self, request):
        self.control.sendto(request.encode(), self.path)
        return json.loads(self.control.recv(65536))

    def begin(self, spec):
        """Both directions anew."""
        assert "error" not in self.ask(f"set both {spec}")
        self.sent = [0, 0]

    def counters(self, sender=1):
        return self.ask("status")["directions"][sender - 1]["counters"]

    def at_rest(self, sender):
        """Has it decided on all that was sent, and passed on what it will?"""
        count = self.counters(sender)
        gone = sum(count[name] for name in
                   ("forwarded", "lost", "blackout", "undeliverable"))
        return count["received"] == self.sent[sender - 1] and \
            gone == count["received"] + count["duplicated"]

    def send(self, sender, data):
        """BlockingIOError: there is no room."""
        self.ends[sender - 1].send(data, socket.MSG_DONTWAIT)
        self.sent[sender - 1] += 1

    def receive(self, receiver=2):
        """All frames that still come of what was sent."""
        end, result = self.ends[receiver - 1], []
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            resting = self.at_rest(3 - receiver)
            while select.select([end], [], [], 0)[0]:
                result.append(end.recv(70000))
            if resting:
                return result
            assert time.monotonic() < deadline, self.counters(3 - receiver)
            time.sleep(POLL_SECONDS)

    def through(self, count, sender=1, **options):
        """Send frames 0 to count - 1; returns those that come out."""
        result, sent = [], 0
        source, receiver = self.ends[sender - 1], self.ends[2 - sender]
        while sent < count:
            # Never wait for room alone: the relay may wait for us to read.
            readable, writable, _ = select.select([receiver], [source], [])
            if readable:
                result.append(receiver.recv(70000))
            elif writable:
                self.send(sender, frame(sent, **options))
                sent += 1
        return result + self.receive(3 - sender)

    def fill(self, sender):
        """Send until it takes no more; returns how many went."""
        count, last = 0, None
        while True:
            with contextlib.suppress(BlockingIOError):
                while True:
                    self.send(sender, frame(count, 4000))
                    count += 1
            now = self.counters(sender)
            if now["full"] and now["received"] == last:
                return count
            last = now["received"]
            time.sleep(POLL_SECONDS)


def check_transparent():
    with Relay() as relay:
        for sender in (1, 2):
            frames = relay.through(500, sender)
            assert frames == [frame(i) for i in range(500)]
        relay.send(1, frame(0, 69632))
        assert relay.receive() == [frame(0, 69632)]
        counters = relay.counters()
        assert counters.pop("received") == counters.pop("forwarded") == 501
        assert not any(value for key, value in counters.items()
                       if key != "full"), counters


def check_repeatable():
    spec = ("loss=100000000 dup=50000000 reorder=50000000 gap=3 "
            "corrupt=50000000")
    runs = []
    for seed in (7, 7, 8):
        with Relay(f"set both seed={seed} {spec}") as relay:
            runs.append((sorted(relay.through(400)), relay.counters()))
    # When the socket was full, and how many frames overtake one before its
    # time is up, is a matter of time and not of fate.
    for _frames, counters in runs:
        counters.pop("full")
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]
    with Relay(f"set both seed=7 {spec}") as relay:
        other = sorted(relay.through(400, sender=2))
        assert other != runs[0][0], "both directions have the same fates"
        relay.begin(f"seed=7 {spec}")
        assert sorted(relay.through(400)) == runs[0][0], "a set begins anew"


def check_loss():
    with Relay("set 1 seed=1 loss=100000000") as relay:
        numbers = [number(data) for data in relay.through(1000)]
        assert numbers == sorted(set(numbers))
        assert 50 <= 1000 - len(numbers) <= 150, len(numbers)
        assert relay.counters()["lost"] == 1000 - len(numbers)
        assert len(relay.through(200, sender=2)) == 200
    with Relay("set both loss=1000000000") as relay:
        assert not relay.through(50)


def check_dup():
    with Relay("set both seed=1 dup=100000000") as relay:
        numbers = [number(data) for data in relay.through(1000)]
        assert numbers == sorted(numbers)
        assert set(numbers) == set(range(1000))
        twice = len(numbers) - 1000
        assert 50 <= twice <= 150 and relay.counters()["duplicated"] == twice


def check_reorder():
    with Relay("set both seed=1 reorder=20000000 gap=2") as relay:
        numbers = [number(data) for data in relay.through(1000)]
        assert sorted(numbers) == list(range(1000))
        late = [n for n, m in zip(numbers, numbers[1:]) if n > m]
        count = relay.counters()["reordered"]
        # Neighbours may be late together.
        assert 5 <= len(late) <= count <= 40, (len(late), count)
    with Relay("set both reorder=1000000000 gap=1000") as relay:
        # Nothing overtakes a last frame, and still it comes.
        assert len(relay.through(3)) == 3


def check_corrupt():
    with Relay("set both seed=1 corrupt=100000000") as relay:
        frames = relay.through(500)
        bits = [sum((a ^ b).bit_count() for a, b in zip(data, frame(i)))
                for i, data in enumerate(frames)]
        assert len(frames) == 500 and set(bits) == {0, 1}
        assert 20 <= sum(bits) <= 80
        assert relay.counters()["corrupted"] == sum(bits)
        assert all(data.startswith(HEADER) for data in frames)
        arp = relay.through(500, header=ARP_HEADER)
        assert arp == [frame(i, header=ARP_HEADER) for i in range(500)]


def check_delay():
    with Relay("set 1 delay=10000000000") as relay:
        relay.send(1, frame(0))
        assert relay.through(1, sender=2) == [frame(0)]
        assert not relay.counters()["forwarded"], "it was not delayed"
    with Relay("set 1 delay=200000000") as relay:
        began = time.monotonic()
        for i in range(100):
            relay.send(1, frame(i))
        assert number(relay.ends[1].recv(100)) == 0
        assert time.monotonic() - began >= 0.2
        assert [number(data) for data in relay.receive()] == \
            list(range(1, 100))
    with Relay("set both seed=1 jitter=20000000") as relay:
        numbers = [number(data) for data in relay.through(100)]
        assert numbers != sorted(numbers) and len(set(numbers)) == 100


def check_blackout():
    with Relay() as relay:
        relay.ask("blackout both 3600000000000")
        assert not relay.through(20) and not relay.through(20, sender=2)
        assert relay.counters()["blackout"] == 20
        relay.ask("blackout 2 0")
        assert len(relay.through(20, sender=2)) == 20
        assert not relay.through(20)
        relay.ask("blackout 1 100000000")
        time.sleep(0.2)
        assert len(relay.through(20)) == 20


def check_full():
    """Full both ways, nothing is lost and nothing stands still for ever."""
    for spec in ("set both", "set both delay=1000000"):
        with Relay(spec) as relay:
            counts = relay.fill(1), relay.fill(2)
            assert relay.counters(1)["full"] and relay.counters(2)["full"]
            for receiver, count in ((2, counts[0]), (1, counts[1])):
                frames = relay.receive(receiver)
                assert frames == [frame(i, 4000) for i in range(count)], \
                    f"{len(frames)} of {count}"


def check_guest_gone():
    with Relay() as relay:
        relay.ends[1].close()
        relay.send(1, frame(0))
        while not relay.at_rest(1):
            time.sleep(POLL_SECONDS)
        assert relay.counters()["undeliverable"] == 1
        stat = Path(f"/proc/{relay.process.pid}/stat").read_text().split()
        before = int(stat[13]) + int(stat[14])
        time.sleep(1)
        stat = Path(f"/proc/{relay.process.pid}/stat").read_text().split()
        assert int(stat[13]) + int(stat[14]) - before < 20, "it spins"


def check_requests():
    with Relay() as relay:
        for request, named in (
                ("", "status, set"), ("nonsense", "status, set"),
                ("set", "FROM"), ("set 3", "FROM"), ("x" * 5000, "status"),
                ("sit 1", "'sit'"), ("set both loss", "'loss' is not KEY"),
                ("set both lose=1", "'lose'"),
                ('set both "\\\n\xe9=1', '\'"\\'),
                ("set both loss=-1", "loss '-1'"),
                ("set 1 loss=99999999999999999999", "loss '999"),
                ("set both dup=1 loss=1x", "loss '1x'"),
                ("set both dup=1000000001", "from 0 to 1000000000"),
                ("set 1 reorder=1000000001", "reorder '1000000001'"),
                ("set 1 corrupt=1000000001", "corrupt '1000000001'"),
                ("set 1 gap=1001", "gap '1001' is not a number from 0 to "
                 "1000"),
                ("set 1 delay=10000000001", "delay '10000000001'"),
                ("set 1 jitter=10000000001", "jitter '10000000001'"),
                ("blackout both", "blackout ''"),
                ("blackout both -1", "blackout '-1'"),
                ("blackout 1 x", "blackout 'x'"),
                ("blackout 1 3600000000001", "blackout '3600000000001'")):
            answer = relay.ask(request)
            assert named in answer.get("error", ""), (request, answer)
        # The largest of each, as the tool may ask for.
        assert "error" not in relay.ask(
            "set both seed=18446744073709551615 loss=1000000000 "
            "dup=1000000000 reorder=1000000000 gap=1000 corrupt=1000000000 "
            "delay=10000000000 jitter=10000000000")
        relay.ask("set both")
        assert "error" not in relay.ask("set 2 loss=5 delay=7")
        first, second = relay.ask("status")["directions"]
        assert first["spec"]["loss"] == 0 and second["spec"]["loss"] == 5
    for words in ([], ["0", "1", "/tmp/x"], ["7", "x", "/tmp/x"]):
        result = subprocess.run([sys.argv[1], *words], capture_output=True,
                                stdin=subprocess.DEVNULL, check=False)
        assert result.returncode in (1, 2) and result.stderr, words


def main():
    checks = [(name[6:], function) for name, function in globals().items()
              if name.startswith("check_")]
    print(f"1..{len(checks)}")
    for index, (name, function) in enumerate(checks, 1):
        try:
            function()
            print(f"ok {index} - {name}", flush=True)
        except AssertionError as error:
            line = error.__traceback__.tb_lineno
            print(f"not ok {index} - {name}", flush=True)
            trace = error.__traceback__
            while trace:
                line, trace = trace.tb_lineno, trace.tb_next
            print(f"# line {line}: {str(error)[:500]}", flush=True)


if __name__ == "__main__":
    main()
