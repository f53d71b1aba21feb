"""Write a corpus, DIR/train.bin and DIR/val.bin: `python -m trainer.text DIR`."""

import argparse
import sys
from pathlib import Path

from trainer.text.corpus import CorpusError, write

_EPILOG = """\
Without --text it is the sources of Python's standard library, about 15 MB: nothing is downloaded. Without --tokenizer a token is
a byte.

examples:
  python -m trainer.text /mnt/data/text
  python -m trainer.text /mnt/data/papers --tokenizer llama/tokenizer.json --text papers/*.txt
"""


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m trainer.text", description=__doc__, epilog=_EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", metavar="DIR", type=Path)
    parser.add_argument("--text", metavar="FILE", type=Path, nargs="+", default=[], help="a text each, at least two")
    parser.add_argument("--tokenizer", metavar="FILE", type=Path, help="tokenizer.json of the model that is to be tuned")
    given = parser.parse_args(arguments)
    try:
        facts = write(given.folder, texts=given.text, tokenizer=given.tokenizer)
    except (CorpusError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    sizes = ", ".join(f"{part} {facts[part]['bytes'] / 1e6:.1f} MB" for part in ("train", "val"))
    told = f"from {facts['files']} files of Python {facts['python']}" if not given.text else f"from {facts['files']} files"
    print(f"{given.folder}: {sizes}, {told}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
