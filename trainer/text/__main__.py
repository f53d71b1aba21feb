"""`python -m trainer.text DIR`: write the corpus, DIR/train.bin and DIR/val.bin, about 15 MB; nothing is downloaded."""

import sys
from pathlib import Path

from trainer.text.corpus import CorpusError, write


def main(arguments: list[str]) -> int:
    if len(arguments) != 1 or arguments[0].startswith("-"):
        print(__doc__)
        return 0 if arguments in ([], ["-h"], ["--help"]) else 1
    try:
        facts = write(Path(arguments[0]))
    except (CorpusError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    sizes = ", ".join(f"{part} {facts[part]['bytes'] / 1e6:.1f} MB" for part in ("train", "val"))
    print(f"{arguments[0]}: {sizes}, from {facts['files']} files of Python {facts['python']}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
