"""A web server on this machine that serves files, or one under every name, and can be told to misbehave."""

import contextlib
import re
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Web:
    """`break_after`: how many bytes each of the next answers gets before its connection breaks."""

    def __init__(self, content: bytes, files: Mapping[str, bytes]) -> None:
        self.content, self.files = content, files
        self.ranges = True  # whether it can start in the middle
        self.status: list[int] = []  # of the next answers, instead of the file
        self.break_after: list[int] = []
        self.hang = threading.Event()  # set: a broken answer stays open, as when a machine is gone
        self.asked: list[str | None] = []  # the Range of each request
        self.url = ""


@contextlib.contextmanager
def serve(content: bytes = b"", files: Mapping[str, bytes] | None = None) -> Iterator[Web]:
    web, over = Web(content, files or {}), threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            wanted = self.headers.get("Range")
            web.asked.append(wanted)
            if web.status:
                self.send_error(web.status.pop(0))
                return
            content = web.files.get(self.path.strip("/"), web.content)
            start = int(re.findall(r"bytes=(\d+)-", wanted)[0]) if wanted and web.ranges else 0
            if start >= len(content) and start:
                self.send_response(416)
                self.send_header("Content-Range", f"bytes */{len(content)}")
                self.end_headers()
                return
            body = content[start:]
            self.send_response(206 if start else 200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            broken = web.break_after.pop(0) if web.break_after else len(body)
            with contextlib.suppress(ConnectionError):
                self.wfile.write(body[:broken])
            if broken < len(body) and web.hang.is_set():
                over.wait(60)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        web.url = f"http://127.0.0.1:{server.server_port}/data.zip"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield web
        finally:
            over.set()
            server.shutdown()
            thread.join()
