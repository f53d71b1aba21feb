"""Plain TCP from one machine to another: what their link carries without torch. Run by path; imports nothing of ours.

python stream.py receive ADDRESS           # prints its port, then the GB/s of the peer that has sent
python stream.py send ADDRESS PORT SECONDS
"""

import socket
import sys
import time

_PIECE = 2**20


def receive(address: str) -> None:
    """The rate from the first byte of one connection to its last."""
    with socket.create_server((address, 0)) as server:
        print(server.getsockname()[1], flush=True)
        connection, _ = server.accept()
        buffer = bytearray(_PIECE)
        connection.recv_into(buffer)
        begun = time.perf_counter()
        count = 0
        while got := connection.recv_into(buffer):
            count += got
        print(count / (time.perf_counter() - begun) / 1e9, flush=True)


def send(address: str, port: int, seconds: float) -> None:
    piece, end = bytes(_PIECE), time.perf_counter() + seconds
    with socket.create_connection((address, port)) as connection:
        while time.perf_counter() < end:
            connection.sendall(piece)


if __name__ == "__main__":
    verb, *words = sys.argv[1:]
    receive(words[0]) if verb == "receive" else send(words[0], int(words[1]), float(words[2]))
