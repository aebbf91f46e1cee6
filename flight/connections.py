"""Ending connections that gRPC would wait for.

A server's shutdown waits for every call, and a call that writes to a client that reads nothing never ends; pyarrow has no deadline to
give. What such a client has is a TCP connection, and that can be shut from here: gRPC sees it break and ends its calls.
"""

from __future__ import annotations

import os
import socket

__all__ = ["cut_connections"]


def cut_connections(port: int) -> int:
    """Shut down every accepted connection of this process on local `port`; how many.

    Sockets are found through the process's own descriptors and are not closed: they stay gRPC's.
    """
    cut = 0
    for name in os.listdir("/dev/fd"):
        try:
            connection = socket.socket(fileno=int(name))
        except (OSError, ValueError):
            continue  # no socket, or gone since the listing
        try:
            if connection.family in (socket.AF_INET, socket.AF_INET6) and connection.getsockname()[1] == port:
                connection.getpeername()  # a listening socket has no peer
                connection.shutdown(socket.SHUT_RDWR)
                cut += 1
        except OSError:
            continue  # listening, or closed by its client meanwhile
        finally:
            connection.detach()
    return cut
