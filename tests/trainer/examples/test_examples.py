"""The example scripts: a stock one and its elastic twin, which differ in about ten lines and both run."""

import difflib
import json
import os
import re
from pathlib import Path

import pytest
import torch

from ebb import elastic
from tests.elastic import images
from tests.elastic.runtime.ranks import together
from trainer.examples.images import elastic as elastic_images
from trainer.examples.images import stock as stock_images
from trainer.examples.text import elastic as elastic_text
from trainer.examples.text import stock as stock_text

EXAMPLES = Path(elastic_images.__file__).parents[1]


def added(kind: str) -> list[str]:
    """Lines of code that the elastic script has and the stock one has not; indentation is none, and comments are no code."""

    def lines(name: str) -> list[str]:
        text = re.sub(r'^""".*?"""\n', "", (EXAMPLES / kind / name).read_text(), flags=re.DOTALL)
        return [line.strip() for line in text.splitlines() if line.strip()]

    found = difflib.ndiff(lines("stock.py"), lines("elastic.py"))
    return [line[2:] for line in found if line.startswith("+ ")]


@pytest.mark.parametrize(("kind", "most"), [("images", 12), ("text", 9)])
def test_about_ten_lines_change(kind: str, most: int) -> None:
    assert len(added(kind)) <= most, added(kind)


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return images.make(tmp_path_factory.mktemp("images"))


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("text")
    (folder / "train.bin").write_bytes(bytes(range(256)) * 20)
    return folder


def elastic_program(kind: str, data: Path, output: Path, epochs: int) -> None:
    os.environ["EBB_OUTPUT_DIR"] = str(output)
    {"images": elastic_images, "text": elastic_text}[kind].main(str(data), epochs)


def stock_program(kind: str, data: Path, folder: Path) -> None:
    os.chdir(folder)
    {"images": stock_images, "text": stock_text}[kind].main(str(data), 1)
    torch.distributed.destroy_process_group()


@pytest.mark.e2e
@pytest.mark.parametrize("kind", ["images", "text"])
def test_the_elastic_script_on_two_ranks_and_then_on_one(kind: str, pictures: Path, text: Path, tmp_path: Path) -> None:
    data = pictures if kind == "images" else text
    together(elastic_program, 2, kind, data, tmp_path, 1)
    first = json.loads((tmp_path / "result.json").read_text())
    together(elastic_program, 1, kind, data, tmp_path, 2)  # one epoch more
    second = json.loads((tmp_path / "result.json").read_text())
    size = 27 if kind == "images" else 79
    assert (first["step"], second["step"], second["generation"]) == (-(-size // 32), -(-2 * size // 32), 2)


@pytest.mark.e2e
@pytest.mark.parametrize("kind", ["images", "text"])
def test_the_stock_script_runs(kind: str, pictures: Path, text: Path, tmp_path: Path) -> None:
    together(stock_program, 2, kind, pictures if kind == "images" else text, tmp_path)
    assert (tmp_path / "checkpoint.pth").exists()


def test_what_the_elastic_script_needs_is_in_the_facade() -> None:
    used = set(
        re.findall(
            r"(?<!\.)elastic\.(\w+)", (EXAMPLES / "images/elastic.py").read_text() + (EXAMPLES / "text/elastic.py").read_text()
        )
    )
    assert used - {"py"} <= set(elastic.__all__)
