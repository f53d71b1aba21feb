"""`python -m ebb.elastic.data convert FOLDER OUT`: decode images once; `tokenise OUT TEXTS...`: tokenise and pack texts once;
`verify OUT`: look whether they are still what was written.

    python -m ebb.elastic.data convert /mnt/data/imagenet /mnt/data/imagenet-256 --size 256 --workers 16
    python -m trainer --data /mnt/data/imagenet-256 ...

    python -m ebb.elastic.data tokenise /mnt/data/c4-2048 c4/*.jsonl.gz --tokenizer model/tokenizer.json --length 2048
    run.loader(elastic.tokens("/mnt/data/c4-2048"))

FOLDER holds train/<class>/<images> and val/<class>/<images>, or <class>/<images> itself; OUT gets the same form.
"""

import argparse
import os
import sys
from pathlib import Path

from ebb.elastic.cores import cores_of_this_rank
from ebb.elastic.data.convert import convert, verify
from ebb.elastic.data.sealed import DataError
from ebb.elastic.data.shards import Shards
from ebb.elastic.data.streams import tokens
from ebb.elastic.data.tokenise import damaged, tokenise

_LARGEST = 4096


def main(arguments: list[str]) -> int:
    """The process's edge: errors become sentences."""
    given = _parse(arguments)
    try:
        if given.command == "tokenise":
            return _tokenise(given)
        workers = given.workers or cores_of_this_rank(os.environ, 1)
        return _verify(given.out, workers) if given.command == "verify" else _convert(given, workers)
    except (DataError, OSError) as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        return 1


def _convert(given: argparse.Namespace, workers: int) -> int:
    if not given.folder.is_dir():
        raise DataError(f"{given.folder} is no folder")
    for folder, out in _parts(given.folder, given.out):
        fresh = convert(folder, out, size=given.size, workers=workers, say=say)
        say(f"{out}: {len(Shards(out))} images of {folder}" + ("" if fresh else ", there already"))
    return 0


def _tokenise(given: argparse.Namespace) -> int:
    settings = {"tokenizer": given.tokenizer, "length": given.length, "field": given.field, "end": given.end}
    fresh = tokenise(given.out, given.texts, **settings, say=say)
    made = tokens.read_manifest(str(given.out))
    rows = sum(rows for rows, *_ in made.shards)
    say(f"{given.out}: {made.tokens} tokens in {rows} rows of {made.length}" + ("" if fresh else ", there already"))
    return 0


def _verify(out: Path, workers: int) -> int:
    if (out / tokens.MANIFEST).exists():
        return _say_damaged(out, damaged(out), "tokenise")
    folders = [part for part in (out, out / "train", out / "val") if Shards.are_in(part)]
    if not folders:
        raise DataError(f"{out} holds no shards: `python -m ebb.elastic.data convert FOLDER {out}` makes them")
    return _say_damaged(out, [path for folder in folders for path in verify(folder, workers=workers, say=say)], "convert")


def _say_damaged(out: Path, bad: list[Path], command: str) -> int:
    if bad:
        names = "\n".join(map(str, bad))
        also = f" and {tokens.MANIFEST}" if command == "tokenise" else ""
        raise DataError(
            f"{len(bad)} shards are damaged or missing:\n{names}\nRemove them{also} and run {command} again: it makes only these"
        )
    say(f"{out}: all bytes are those that were written")
    return 0


def _parts(folder: Path, out: Path) -> list[tuple[Path, Path]]:
    parts = [(folder / part, out / part) for part in ("train", "val") if (folder / part).is_dir()]
    return parts or [(folder, out)]


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m ebb.elastic.data", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    converting = commands.add_parser("convert", help="make shards of decoded images; a run that was killed is taken up again")
    converting.add_argument("folder", type=Path, help="the image folder")
    converting.add_argument("out", type=Path, help="where the shards shall be")
    converting.add_argument("--size", type=int, default=256, help="longest shorter side of an image, in pixels (default 256)")
    tokenising = commands.add_parser("tokenise", help="make rows of tokens of texts; a run that was killed is taken up again")
    tokenising.add_argument("out", type=Path, help="where the shards shall be")
    tokenising.add_argument("texts", type=Path, nargs="+", help="files: .txt, .jsonl, .jsonl.gz, .parquet")
    tokenising.add_argument("--tokenizer", type=Path, required=True, help="a tokenizer.json, as Hugging Face stores it")
    tokenising.add_argument("--length", type=int, required=True, help="tokens of a row")
    tokenising.add_argument("--field", default="text", help="of a line or a row that is the text (default text)")
    tokenising.add_argument("--end", default="", help="the token after each text, where the tokenizer has no usual one")
    verifying = commands.add_parser("verify", help="compare all bytes with their checksums")
    verifying.add_argument("out", type=Path, help="a folder that convert or tokenise has made")
    for command in (converting, verifying):
        command.add_argument("--workers", type=int, default=0, help="threads; 0: one per core (default)")
    given = parser.parse_args(arguments)
    if given.command == "convert" and not 8 <= given.size <= _LARGEST:
        parser.error(f"--size is {given.size}; it must be 8 to {_LARGEST}")
    if given.command != "tokenise" and given.workers < 0:
        parser.error(f"--workers is {given.workers}; it must be 0 or more")
    return given


def say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
