"""The rules of a job's failurePolicy by which a launcher starts its program again in the same pod. Pure.

    rules = RestartRules.of(os.environ)                     # of $EBB_RESTART_RULES; without it there are none
    rules.take(code, sentence)                              # "rule 2 of spec.failurePolicy ..." or "": not by a rule

A pod that stays keeps its machine, its place on it, the packages and the code that it has fetched, and a warm cache of files.
Only program failures come here: machines at fault leave, and changes of the membership are no failure.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from ebb.elastic.contract import ENV_RESTART_RULES


class RestartRules:
    """They count, for the life of a launcher."""

    def __init__(self, rules: Sequence[Mapping[str, Any]]) -> None:
        self._rules = rules
        self._used: Counter[int] = Counter()

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> RestartRules:
        text = environment.get(ENV_RESTART_RULES, "")
        return cls(json.loads(text) if text else ())

    def take(self, code: int, sentence: str) -> str:
        """Use the first rule that fits, in words. "": none does, all that do are used up, or the first says something else."""
        for rule in self._rules:
            number, times, words = rule["rule"], rule["times"], rule["words"]
            fits = (not rule["codes"] or code in rule["codes"]) and words in sentence
            if not fits or 0 < times <= self._used[number]:
                continue
            if not times:  # the controller does what that one says
                return ""
            self._used[number] += 1
            left = times - self._used[number]
            return f"rule {number} of spec.failurePolicy starts it again in its place, {left} more times at most"
        return ""
