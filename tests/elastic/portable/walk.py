"""Imports every module of the folder on the Python that runs this, with stand-ins for the image's libraries. Run by path.

And tries what differs between Pythons.
"""
# mypy: ignore-errors

import contextlib
import gc
import importlib
import importlib.abc
import importlib.machinery
import pkgutil
import sys
import types
import weakref

FAKED = ("torch", "numpy", "torchvision", "PIL", "accelerate", "lightning", "transformers")


class Anything:
    """A class, a decorator, a number or a module: whatever an import asks of it."""

    def __init__(self, *_, **__):
        pass

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything()

    def __call__(self, *given, **_):
        return given[0] if given and callable(given[0]) else Anything()

    def __getitem__(self, _):
        return Anything()

    def __mro_entries__(self, _):
        return ()


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, *_):
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if name.split(".")[0] in FAKED else None

    def create_module(self, spec):
        module = types.ModuleType(spec.name)
        module.__getattr__ = Anything().__getattr__
        return module

    def exec_module(self, _):
        pass


sys.meta_path.insert(0, Finder())
sys.path[:1] = [sys.argv[1]]
import ebb  # noqa: E402

skipped = ("ebb.elastic.launch.preload",)  # begins a session of its own
found = [each.name for each in pkgutil.walk_packages(ebb.__path__, "ebb.") if each.name not in skipped]
found = [name for name in found if not name.startswith("ebb._vendor.")]  # ours import what they need of it
for name in found:
    importlib.import_module(name)


def lose_a_peer():
    """A frame of its error holds the work, on which gloo's threads and connections hang."""
    work = Anything()
    held.append(weakref.ref(work))
    with process_group.noticing_loss():
        raise RuntimeError("Connection reset by peer")


from ebb.elastic.runtime import process_group  # noqa: E402

process_group.is_loss, held = lambda error: True, []
gc.disable()
with contextlib.suppress(process_group.PeerLostError):
    lose_a_peer()
assert held[0]() is None, (
    "the error of a lost peer holds itself: where a generator turns it into another error, it does on new Pythons"
)
foreign = sorted({name.split(".")[0] for name in sys.modules} & {"urllib3", "aiohttp", "kubernetes_asyncio"})
print(len(found), *foreign)
