"""A road to etcd that can be cut as networks are: nothing arrives any more, and nobody is told."""

import contextlib
import socket
import threading


class Proxy:
    """`endpoint` leads to 127.0.0.1:`port`. While cut, what is sent is swallowed; connections from before stay so for ever."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._open = threading.Event()
        self._open.set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets: list[socket.socket] = [self._listener]
        self.endpoint = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        self._open.clear()

    def heal(self) -> None:
        self._open.set()

    def close(self) -> None:
        for each in self._sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(("127.0.0.1", self._port))
                self._sockets += [near, far]
                for source, target in ((near, far), (far, near)):
                    threading.Thread(target=self._carry, args=(source, target), daemon=True).start()

    def _carry(self, source: socket.socket, target: socket.socket) -> None:
        deaf = not self._open.is_set()
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                deaf = deaf or not self._open.is_set()
                if not deaf:
                    target.sendall(data)
            if not deaf:
                target.shutdown(socket.SHUT_WR)
