"""Names of torch that the training runtime uses, and those of them that torch 2.1.2 has: torch-2.1.2.txt.

PYTHONPATH=FOLDER python -m tests.elastic.torch_names        # writes that file; FOLDER: where pip has put torch 2.1.2
"""

import ast
import contextlib
import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ebb.elastic

RUNTIME = Path(ebb.elastic.__file__).parent
RECORD = Path(__file__).with_name("torch-2.1.2.txt")


def names_used() -> set[str]:
    """Full names, without those under an `if` or `try` of a module: there it asks what this torch has."""
    return {
        name
        for path in RUNTIME.rglob("*.py")
        if path.name != "torch_compat.py"
        for name in _names_in(ast.parse(path.read_text()))
    }


def is_there(name: str) -> bool:
    parts = name.split(".")
    for count in range(len(parts), 0, -1):  # the longest module: torch.distributed has a function and a module `rendezvous`
        with contextlib.suppress(ImportError):
            found: Any = importlib.import_module(".".join(parts[:count]))
            for part in parts[count:]:
                if not hasattr(found, part):
                    return False
                found = getattr(found, part)
            return True
    return False


def _names_in(module: ast.Module) -> Iterator[str]:
    module.body = [each for each in module.body if not isinstance(each, (ast.If, ast.Try))]
    known: dict[str, str] = {}
    for each in ast.walk(module):
        if isinstance(each, ast.Import):
            known.update({a.asname or "torch": a.name if a.asname else "torch" for a in each.names if _is_torchs(a.name)})
            yield from (a.name for a in each.names if _is_torchs(a.name))
        elif isinstance(each, ast.ImportFrom) and _is_torchs(each.module or ""):
            known.update({a.asname or a.name: f"{each.module}.{a.name}" for a in each.names})
            yield from (f"{each.module}.{a.name}" for a in each.names)
    for each in ast.walk(module):
        if isinstance(each, ast.Attribute) and (name := _dotted(each)):
            first, _, rest = name.partition(".")
            if first in known:
                yield f"{known[first]}.{rest}"


def _is_torchs(name: str) -> bool:
    return name.partition(".")[0] == "torch"


def _dotted(node: ast.expr) -> str | None:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (before := _dotted(node.value)):
        return f"{before}.{node.attr}"
    return None


if __name__ == "__main__":
    import torch

    assert torch.__version__.startswith("2.1.2"), torch.__version__
    RECORD.write_text("".join(f"{name}\n" for name in sorted(names_used()) if is_there(name)))
