"""How a point of a sweep reaches the program. Pure code.

words_of(("train.py", "--epochs", "5"), point, FLAGS)         # train.py --epochs 5 --lr 0.1
words_of(("train.py", "--rate={lr}"), point, FLAGS)           # train.py --rate=0.1
words_of(("train.py",), point, HYDRA)                         # train.py lr=0.1
command_of(request)                                           # ebb submit --gpus 2 -- python train.py --lr 0.1
"""

from collections.abc import Iterable

from ebb.client.sweep.points import Point

FLAGS, HYDRA = "flags", "hydra"


def words_of(words: Iterable[str], point: Point, style: str) -> tuple[str, ...]:
    """The program's words with the point in them: at {key} where that is written, else at the end."""
    given, placed = list(words), set[str]()
    for key, value in point.values:
        mark = f"{{{key}}}"
        if any(mark in word for word in given):
            given = [word.replace(mark, value) for word in given]
            placed.add(key)
    rest = [pair for pair in point.values if pair[0] not in placed]
    return (*given, *(word for key, value in rest for word in _words(key, value, style)))


def _words(key: str, value: str, style: str) -> tuple[str, ...]:
    if style == HYDRA:
        if key.startswith("~") and not value:  # `~db` removes db whatever it is, `~db=` only an empty one
            return (key,)
        return (f"{key}={value}",)
    flag = f"-{key}" if len(key) == 1 else f"--{key}"
    if value.startswith("-") and len(key) > 1:  # argparse would take most of them for a flag
        return (f"{flag}={value}",)
    return (flag, value)
