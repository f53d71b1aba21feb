"""`python -m trainer` and `python -m trainer.images`: the process around learning.py. Its exit codes are those of run/edge.py."""

from collections.abc import Callable, Mapping

from ebb.elastic.notices.notice import Notice
from ebb.elastic.runtime.main import run_program, trained
from trainer.images import config as defaults
from trainer.images.learning import learn
from trainer.images.options import VisionConfig

Parse = Callable[[list[str], Mapping[str, str]], VisionConfig]


def main(arguments: list[str], parse: Parse = defaults.parse) -> int:
    """The process's edge: errors become sentences and exit codes."""
    return run_program(arguments, parse, learn)


def train(config: VisionConfig, notice: Notice) -> int:
    """Train this rank's part; returns the exit code. Raises the errors of settings, data and checkpoints."""
    return trained(config, notice, learn)
