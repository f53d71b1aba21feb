"""A web server on this machine that serves files, or one under every name, and can be told to misbehave."""

import contextlib
import re
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Web:
    """`break_after`: how many bytes each of the next answers gives before its connection breaks."""

    def __init__(self, content: bytes, files: Mapping[str, bytes]) -> None:
        self.content, self.files = content, files
        self.ranges = True  # whether it gives parts
        self.most = 0  # answers at once; further requests get 503. 0: any number
        self.together: threading.Barrier | None = None  # answers to requests of parts wait for as many of them
        self.status: list[int] = []  # of the next answers, instead of the file
        self.refuse_after: int | None = None  # this many answers come; then 403
        self.break_after: list[int] = []
        self.hang = threading.Event()  # set: a broken answer stays open, as when a machine is gone
        self.asked: list[str | None] = []  # the Range of each request
        self.url = ""


@contextlib.contextmanager
def serve(content: bytes = b"", files: Mapping[str, bytes] | None = None) -> Iterator[Web]:
    web, over, places = Web(content, files or {}), threading.Event(), threading.Lock()
    open_answers = [0]

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            wanted = self.headers.get("Range")
            with places:
                web.asked.append(wanted)
                status = web.status.pop(0) if web.status else 503 if web.most and open_answers[0] == web.most else 0
                if web.refuse_after is not None:
                    status, web.refuse_after = (0, web.refuse_after - 1) if web.refuse_after else (403, 0)
                broken = web.break_after.pop(0) if web.break_after and not status else None
                open_answers[0] += not status
            if status:
                self.send_error(status)
                return
            try:
                self.answer(wanted, broken)
            finally:
                with places:
                    open_answers[0] -= 1

        def answer(self, wanted: str | None, broken: int | None) -> None:
            content = web.files.get(self.path.strip("/"), web.content)
            part = re.fullmatch(r"bytes=(\d+)-(\d+)", wanted) if wanted and web.ranges else None
            start, stop = (int(part[1]), min(int(part[2]) + 1, len(content))) if part else (0, len(content))
            if part and start >= len(content):
                self.send_response(416)
                self.send_header("Content-Range", f"bytes */{len(content)}")
                self.end_headers()
                return
            if start and web.together:
                web.together.wait(60)
            body = content[start:stop]
            self.send_response(206 if part else 200)
            self.send_header("Content-Length", str(len(body)))
            if part:
                self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{len(content)}")
            self.end_headers()
            with contextlib.suppress(ConnectionError):
                self.wfile.write(body[:broken])
            if broken is not None and broken < len(body) and web.hang.is_set():
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
