"""Limits of Ebb beside an older torch: the first line of a log, and said by `ebb submit` where an image's name has the version.

    find_problem("2.0.1")                # why the launcher cannot run there; "" where it can
    find_limits("2.4.1")                 # what will not work there, in one line; "" for nothing
    version_in("pytorch/pytorch:2.4.1-cuda12.4-cudnn9-runtime")       # "2.4.1"; None where the name has none

The client and the launcher both import this, and the launcher runs on Python 3.9.
"""

from __future__ import annotations

import re

OLDEST = (2, 1)
# The first version that can, and what an older one cannot.
LIMITS = (
    ((2, 6), "an evaluation under --compile compiles its own shapes"),
    ((2, 7), "what --compile has compiled is not kept for the next start"),
    ((2, 9), "run.distribute(shard=True) is refused"),
)
COMPLETE = LIMITS[-1][0]
_IN_A_NAME = re.compile(r"torch[-_]?v?(\d\.\d+(?:\.\d+)?)")  # lab/train:py310-torch2.3.1
_AS_A_TAG = re.compile(r"(\d\.\d+(?:\.\d+)?)(?![\d.])")  # NVIDIA's are months: 25.01-py3


def find_problem(version: str | None) -> str:
    """None: there is no torch; "": it does not tell its version."""
    needs = f"Ebb's launcher needs {title(OLDEST)} or newer: take an image with it, or leave out --image for the stack's trainer"
    if version is None:
        return f"there is no torch for this Python, and {needs}"
    return f"the image's torch is {version}, and {needs}" if (_numbers(version) or OLDEST) < OLDEST else ""


def find_limits(version: str) -> str:
    found = _numbers(version)
    lacking = [text for first, text in LIMITS if found and found < first]
    listed = " and ".join([*filter(None, [", ".join(lacking[:-1])]), *lacking[-1:]])
    return f"torch {version} is older than {COMPLETE[0]}.{COMPLETE[1]}, so {listed}" if lacking else ""


def version_in(image: str) -> str | None:
    """torch's version by the name of an image, as pytorch/pytorch and AWS's have it in the tag and others in a word."""
    name, _, tag = image.partition("@")[0].rpartition("/")[2].partition(":")
    found = _IN_A_NAME.search(f"{name}:{tag}") or ("torch" in name and _AS_A_TAG.match(tag))
    return found[1] if found else None


def title(version: tuple[int, int]) -> str:
    return f"torch {version[0]}.{version[1]}"


def _numbers(version: str) -> tuple[int, int] | None:
    found = re.match(r"(\d+)\.(\d+)", version)
    return (int(found[1]), int(found[2])) if found else None
