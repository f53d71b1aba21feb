"""The kubelet's question to the gateway: `python -m ebb.gateway.probe`, run inside its pod, where alone it can be asked.

Exit codes: 0 it answers, 1 it does not; then a sentence, which the kubelet shows in an event. Nothing but a socket is imported:
this program starts anew every few seconds, and an HTTP client would take longer to load than to ask.
"""

import socket
import sys

from ebb.api.contract import GATEWAY_PORT

SECONDS = 4.0  # less than the probe's own limit, so that the sentence is heard
QUESTION = b"GET /healthz HTTP/1.0\r\n\r\n"


def complaint(port: int, seconds: float = SECONDS) -> str:
    """Ask the gateway at a port of the loopback; nothing if it is well."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=seconds) as asked:
            asked.sendall(QUESTION)
            line = asked.makefile("rb").readline(1000)
    except OSError as error:
        return f"the gateway does not answer on 127.0.0.1:{port}: {error}"
    if line.split()[1:2] != [b"200"]:
        return f"the gateway answers {line.decode(errors='replace').strip()!r} on 127.0.0.1:{port}"
    return ""


def main() -> int:
    """Returns the exit code."""
    found = complaint(GATEWAY_PORT)
    if found:
        sys.stderr.write(found + "\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
