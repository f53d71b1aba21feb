"""The clouds for tests that run over all of them: each says in tests/infra/<cloud>/case.py what its things are called.

    @pytest.mark.parametrize("case", CASES, ids=str)

A cloud without that file (local needs no account) is not among them; a folder that is deleted takes its case along.
"""

import copy
import importlib
import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from tests.infra.declared import Answer

FOLDER = Path(__file__).parent
ROOT = FOLDER.parent.parent
Values = dict[str, Any]

if TYPE_CHECKING:
    CASES: tuple["Case", ...]


@dataclass(frozen=True, kw_only=True)
class Case:
    """One cloud. Types are those of the engine, such as aws:eks/nodeGroup:NodeGroup.

    `stack`: its file, Pulumi.<stack>.yaml, whose first line of ebb:nodeGroups is spot in all zones and whose second is on-demand
    in the first zone. `mounts`: what a mount needs beside the file system, and what goes with the stack when that is kept; "" if
    nothing is. `max_key`: the property that a changed `max` is; `bought_key`: one that another capacity type replaces by.
    `further_zone`: one that the file has not, with the names of what it updates and types among what it creates. `cidr`: a path
    in the file and another network range, with the types that it replaces. `data`: the path of what destroy does to data.
    `wrong`: a path and a value that is refused, and the key in the message. `later`: further pairs of types of which all of the
    first go before any of the second. `smallest`: GPU type -> the machine that a line with it gets. `answers`: what the cloud
    computes, for tests/infra/declared.py. `fast`: a line of machines with a fast network between them.
    """

    cloud: str
    stack: str
    package: str
    provider: str
    least: int
    network: str
    subnet: str
    control_plane: str
    node_group: str
    file_system: str
    mounts: str = ""
    max_key: str
    bought_key: str
    further_zone: str
    further_updates: tuple[str, ...]
    further_creates: frozenset[str]
    cidr: tuple[tuple[str, ...], str]
    cidr_replaces: frozenset[str]
    data: tuple[str, ...]
    wrong: tuple[tuple[str, ...], Any, str]
    later: tuple[tuple[str, str], ...] = ()
    smallest: Mapping[str, str] = field(default_factory=dict)
    answers: Mapping[str, Answer] = field(default_factory=dict)
    fast: Mapping[str, Any]

    def __str__(self) -> str:
        return self.cloud

    def values(self, *changes: tuple[tuple[str, ...], Any]) -> Values:
        """The settings of its stack, with changes, and a name on its spot groups: so other capacity is no other name."""
        found: Values = copy.deepcopy(_config(self.stack))
        found["ebb:nodeGroups"][0]["name"] = "t4"
        for path, value in changes:
            here: Any = found
            for step in path[:-1]:
                here = here[step]
            here[path[-1]] = value
        return found

    @property
    def zones(self) -> list[str]:
        return list(self.values()["ebb:zones"])


@cache
def _config(stack: str) -> Values:
    found: Values = yaml.safe_load((ROOT / f"Pulumi.{stack}.yaml").read_text())["config"]
    return found


def __getattr__(name: str) -> tuple[Case, ...]:
    """CASES is found when it is asked for: the files that it is made of import Case from here."""
    if name != "CASES":
        raise AttributeError(name)
    folders = [one.name for one in pkgutil.iter_modules([str(FOLDER)]) if (FOLDER / one.name / "case.py").exists()]
    return tuple(importlib.import_module(f"tests.infra.{name}.case").CASE for name in sorted(folders))
