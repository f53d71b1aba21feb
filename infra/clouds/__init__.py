"""One cloud a module, found by its name and imported when it is used: a missing SDK hurts only the stacks of its cloud."""

import importlib
import pkgutil
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # its records need the settings, and those the names of the clouds
    from infra.cloud import Cloud


@cache  # every check of the settings asks, and the folder stays as it is while a program runs
def names() -> tuple[str, ...]:
    """The clouds that there are."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(__path__)))


def named(name: str) -> "Cloud":
    """The cloud of that name, one of names()."""
    cloud: Cloud = importlib.import_module(f"{__name__}.{name}").CLOUD
    return cloud
