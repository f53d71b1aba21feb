"""Names of newer Pythons that the training runtime uses, for images whose Python is 3.9 or 3.10.

    from ebb.compat import UTC, Never, Self, dataclass, pairwise, zip

The client and the controller bring their own Python, 3.11 or newer. ebb/elastic and ebb/metadata also run on that of an image
that is not ours: there annotations are text (`from __future__ import annotations`), and what a call needs comes from here.
"""

from __future__ import annotations

import sys
from datetime import timezone
from typing import TYPE_CHECKING, Any

__all__ = ["UTC", "Never", "Self", "add_note", "dataclass", "pairwise", "zip"]

UTC = timezone.utc

if TYPE_CHECKING or sys.version_info >= (3, 11):
    from typing import Never, Self
else:
    Never = Self = Any  # nobody evaluates an annotation

if TYPE_CHECKING or sys.version_info >= (3, 10):
    from builtins import zip  # noqa: UP029  # for who imports it from here
    from dataclasses import dataclass
    from itertools import pairwise
else:
    import builtins
    import dataclasses
    import itertools

    def pairwise(values):
        values = list(values)
        return builtins.zip(values, values[1:])

    def zip(*sequences, strict=False):
        if not strict:
            return builtins.zip(*sequences)
        return _zip_strictly(sequences)

    def _zip_strictly(sequences):
        missing = object()
        for values in itertools.zip_longest(*sequences, fillvalue=missing):
            if any(value is missing for value in values):
                raise ValueError("zip() arguments have different lengths")
            yield values

    def dataclass(kind=None, *, kw_only=False, **options):
        """Python's own, and with kw_only a constructor that takes the fields by name, in any order of defaults."""

        def decorate(kind):
            if not kw_only:
                return dataclasses.dataclass(**options)(kind)
            kind = dataclasses.dataclass(init=False, **options)(kind)
            kind.__init__ = _take_by_name
            return kind

        return decorate if kind is None else decorate(kind)

    def _take_by_name(self, **given):
        for field in dataclasses.fields(self):
            if field.name in given:
                value = given.pop(field.name)
            elif field.default is not dataclasses.MISSING:
                value = field.default
            elif field.default_factory is not dataclasses.MISSING:
                value = field.default_factory()
            else:
                raise TypeError(f"{type(self).__name__}() is missing the argument {field.name!r}")
            object.__setattr__(self, field.name, value)
        if given:
            raise TypeError(f"{type(self).__name__}() got an unexpected argument {next(iter(given))!r}")
        if hasattr(self, "__post_init__"):
            self.__post_init__()


def add_note(error: BaseException, note: str) -> None:
    """Show a sentence below the exception's own; before Python 3.11 as a part of it."""
    if sys.version_info >= (3, 11):
        error.add_note(note)
    else:
        error.args = ("\n".join([*map(str, error.args), note]),)
