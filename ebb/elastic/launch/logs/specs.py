"""The place to which torch's agent sends the output of its workers: to our pipes, unless torchrun's own flags send it elsewhere.

Without --redirects and --tee torch leaves both streams as they are inherited, and with them it writes files of its own, which the
agent then reads again ten times a second to print them: so neither keeps ranks apart and lines whole at once. Both flags
work as ever; what torch prints then reaches our file as lines of the launcher.
"""

import os

from ebb.elastic.launch.logs.rank import VARIABLES
from ebb.elastic.launch.logs.reader import LogPipes
from ebb.elastic.launch.older_agent import LogsDest, LogsSpecs

_NAMES = {1: "out", 2: "err"}


class Piped(LogsSpecs):
    """torch's own, and pipes where those leave a stream alone. `forked`: the workers open them themselves (rank.py)."""

    def __init__(self, inner: LogsSpecs, pipes: LogPipes, *, forked: bool) -> None:
        self._inner, self._pipes, self._forked = inner, pipes, forked

    @property
    def root_log_dir(self) -> str:
        return str(self._inner.root_log_dir)

    def reify(self, envs: dict[int, dict[str, str]]) -> LogsDest:
        """Called once for each start of the workers."""
        if "USE_LIBUV" in os.environ:  # of a torch without it (torch_compat.py): a worker that is forked has an older environment
            for each in envs.values():
                each["USE_LIBUV"] = os.environ["USE_LIBUV"]
        return self.redirect(envs, self._inner.reify(envs))

    def redirect(self, envs: dict[int, dict[str, str]], found: LogsDest) -> LogsDest:
        """Put our pipes where torch leaves a stream alone."""
        if not self._pipes.works:
            return found
        self._pipes.renew(next((int(each["WORLD_SIZE"]) for each in envs.values() if "WORLD_SIZE" in each), None))
        for number, paths in ((1, found.stdouts), (2, found.stderrs)):
            for local_rank, path in paths.items():
                if path:
                    continue
                pipe = self._pipes.pipe(f"{envs[local_rank]['RANK']}.{local_rank}.{_NAMES[number]}", number)
                if self._forked:
                    envs[local_rank][VARIABLES[number]] = pipe
                else:
                    paths[local_rank] = pipe
        return found
