#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Send data over TCP between two guests and compare digests.

    tcp_xfer.py MIB [SERVER]

Without SERVER: wait for a client, whose data go there and back.
"""

import hashlib
import os
import socket
import sys
import threading

PORT = 18700
CHUNK = 1 << 16


def receive(sock, size):
    """The digest of so many bytes from the other side."""
    result = hashlib.sha256()
    while size:
        data = sock.recv(min(size, CHUNK))
        if not data:
            sys.exit("the other side is gone")
        result.update(data)
        size -= len(data)
    return result.digest()


def send(sock, data):
    """Send all of data, then its digest."""
    sock.sendall(data)
    sock.sendall(hashlib.sha256(data).digest())


def main():
    size = int(sys.argv[1]) << 20
    data = os.urandom(size)
    if len(sys.argv) > 2:
        sock = socket.create_connection((sys.argv[2], PORT))
    else:
        with socket.create_server(("", PORT)) as listener:
            sock, _address = listener.accept()
    with sock:
        # Both ways at the same time.
        sender = threading.Thread(target=send, args=(sock, data))
        sender.start()
        digest = receive(sock, size)
        expected = sock.recv(len(digest), socket.MSG_WAITALL)
        sender.join()
    if digest != expected:
        sys.exit("the data differ")
    print(f"{size} bytes match")


main()
