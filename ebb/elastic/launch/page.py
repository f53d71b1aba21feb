"""The launcher's own page of metrics, on a port of its own: it answers before its program begins, and after it has ended.

    page = LauncherPage.of(os.environ, say)     # one for the life of a process
    page.put("hold", lambda: 'ebb_held_seconds{exit_code="1",message="KeyError"} 1790\\n')

The program's page, with the progress of the training, is the program's to serve (ebb/elastic/runtime/metrics.py). Without
$EBB_LAUNCHER_PORT, as outside of a job, nothing is served.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ebb.compat import Self
from ebb.elastic.contract import ENV_LAUNCHER_PORT
from ebb.elastic.runtime.metrics import serve


class LauncherPage:
    """Parts by name, each a function that gives its text when somebody asks."""

    def __init__(self) -> None:
        self._parts: dict[str, Callable[[], str]] = {}
        self.is_served = False

    @classmethod
    def of(cls, environment: Mapping[str, str], say: Callable[[str], None]) -> Self:
        page, port = cls(), environment.get(ENV_LAUNCHER_PORT, "")
        if port.isdigit() and int(port):
            found = serve(page, int(port), advice="the controller does not see this launcher's figures", say=say)
            page.is_served = found is not None
        return page

    def put(self, name: str, text: Callable[[], str]) -> None:
        self._parts = {**self._parts, name: text}  # a new one: the server's thread may be reading the old one

    def text(self) -> str:
        return "".join(text() for text in self._parts.values())


def sample(name: str, meaning: str, value: float, **labels: str) -> str:
    """A gauge with one sample in Prometheus' exposition format."""
    return head(name, meaning) + line(name, value, **labels)


def head(name: str, meaning: str) -> str:
    """The lines before the samples of a gauge."""
    return f"# HELP {name} {meaning}\n# TYPE {name} gauge\n"


def line(name: str, value: float, **labels: str) -> str:
    written = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
    return f"{name}{{{written}}} {value}\n" if written else f"{name} {value}\n"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
