"""Free ports of loopback for the programs that checks start. `python3 .ci/ports.py COUNT` prints some, one on each line.

They are below the range from which Linux assigns ports to connections and to listeners without a port of their own: a port stays
free until its program takes it, however long that is.
"""

import itertools
import os
import socket
import sys

FIRST, END = 20_000, 32_768
# Another check on this machine begins at another port.
numbers = itertools.count(os.getpid() % 199 * 64)


def free_ports(count: int) -> list[int]:
    """No port is returned twice."""
    ports = []
    for number in itertools.islice(numbers, END - FIRST):
        port = FIRST + number % (END - FIRST)
        try:
            socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        ports.append(port)
        if len(ports) == count:
            return ports
    sys.exit(f"no {count} ports of 127.0.0.1 from {FIRST} to {END} are free")


if __name__ == "__main__":
    print(*free_ports(int(sys.argv[1])), sep="\n")
