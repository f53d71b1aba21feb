"""One cloud a module, found by its name and imported when it is used: a missing SDK hurts only the stacks of its cloud.

A cloud's module has `TYPES`, its instance types; `CAPACITIES`, how machines can be bought (infra.cloud: SPOT...); `Settings`, a
pydantic model of the stack's section of that name (and `GroupSettings`, if its node groups have one); `problems(stack,
settings)`, what does not agree in a stack on it; and `make(stack, settings) -> Cloud`.
"""

import importlib
import pkgutil
from functools import cache
from types import ModuleType


@cache  # every check of the settings asks, and the folder stays as it is while a program runs
def names() -> tuple[str, ...]:
    """The clouds that there are."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(__path__)))


def module(name: str) -> ModuleType:
    """The module of a cloud; `name` is one of names()."""
    return importlib.import_module(f"{__name__}.{name}")
