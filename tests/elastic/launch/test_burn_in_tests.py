"""Measurements of a burn-in, on the CPU: what passes on a device that is well, and each fault that is planted into torch."""

import json
from collections.abc import Callable
from typing import Any

import pytest
import torch

from ebb.elastic.launch import burn_in_tests
from ebb.elastic.launch.burn_in_tests import WrongResultError, exercise, exercise_links, take_memory, whole_numbers

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Little of everything: three chunks of memory, each of several parts."""
    values = {"_CPU_MEMORY_BYTES": 5 * 2**16, "_CHUNK_WORDS": 2**14, "_PART_WORDS": 3000, "_COPY_BYTES": 2**16}
    for name, value in {**values, "_LONGEST_PRODUCT_SECONDS": 0.0, "_TELL_SECONDS": 0.0}.items():
        monkeypatch.setattr(burn_in_tests, name, value)


def run(seconds: float = 0.0) -> dict[str, Any]:
    return exercise(CPU, seconds, lambda *_: None)


def test_a_device_that_is_well_has_figures() -> None:
    heard: list[str] = []
    found = exercise(CPU, 0.6, lambda test, words: heard.append(f"{test}: {words}"))
    memory, products, copies = (found[name] for name in ("memory", "products", "copies"))
    assert memory["patterns_written"] >= 6
    assert memory["write_gb_per_second"] > 0
    assert [products[name]["size"] for name in ("float64", "float32", "bfloat16")] == [128, 128, 128]
    assert all(each["tflops"] > 0 and each["products"] >= 2 for each in products.values())
    assert copies["to_gb_per_second"] > 0
    assert {line.partition(":")[0] for line in heard} == {"memory", "products", "copies"}
    json.dumps(found)


def test_all_the_memory_is_taken_in_chunks() -> None:
    chunks, total = take_memory(CPU)
    assert [chunk.numel() for chunk in chunks] == [2**14, 2**14, 2**13]
    assert total == 5 * 2**16


def test_whole_numbers_are_what_the_product_is() -> None:
    left, right, expected = whole_numbers(CPU, torch.float64, 256)
    assert torch.equal((left @ right).view(4, 64, 4, 64), expected.view(1, 64, 1, 64).expand(4, 64, 4, 64))
    assert len(torch.unique(expected)) > 20
    assert expected.abs().max() <= 256  # bfloat16 has all whole numbers up to there


def one_bit_of_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    right = torch.Tensor.fill_

    def fill(part: torch.Tensor, value: int) -> torch.Tensor:
        right(part, value)
        if value == 0x5555555555555555 and part.numel() < 3000:
            part[17] ^= 1 << 40
        return part

    monkeypatch.setattr(torch.Tensor, "fill_", fill)


def two_words_at_one_address(monkeypatch: pytest.MonkeyPatch) -> None:
    right = torch.add

    def add(base: torch.Tensor, first: int, *, out: torch.Tensor) -> torch.Tensor:
        right(base, first, out=out)
        out[100] = out[612]
        return out

    monkeypatch.setattr(torch, "add", add)


def products_with_a_wrong_bit(dtype: torch.dtype, which: Callable[[int], bool]) -> Callable[[pytest.MonkeyPatch], None]:
    """The products of that type whose number `which` takes."""

    def plant(monkeypatch: pytest.MonkeyPatch) -> None:
        right, count = torch.matmul, 0

        def matmul(*factors: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
            nonlocal count
            if out is None or out.dtype != dtype:
                return right(*factors, out=out)
            right(*factors, out=out)
            count += 1
            if which(count):
                out.view({2: torch.int16, 4: torch.int32, 8: torch.int64}[out.element_size()])[5, 9] ^= 1
            return out

        monkeypatch.setattr(torch, "matmul", matmul)

    return plant


def copies_with_wrong_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other ones each time: the same on both ways would give back what was sent."""
    right, count = torch.Tensor.copy_, 0

    def copy(target: torch.Tensor, source: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
        nonlocal count
        count += 1
        right(target, source, non_blocking)
        target[3] ^= count
        return target

    monkeypatch.setattr(torch.Tensor, "copy_", copy)


FAULTS = {
    "a-bit-of-memory": (one_bit_of_the_memory, r"its memory: 3 of 40960 words do not hold the pattern 0x55"),
    "an-address-line": (two_words_at_one_address, r"its memory: 15 of 40960 words do not hold its address"),
    "always-computes-wrongly": (
        products_with_a_wrong_bit(torch.float32, lambda _: True),
        r"it computes wrongly: 1 of 16384 numbers of a float32 product",
    ),
    # 1: the exact one; 2: the first to compare with; 3: the first compared
    "computes-wrongly-once": (
        products_with_a_wrong_bit(torch.bfloat16, lambda count: count == 3),
        r"bfloat16 products of the same numbers differ in 1 numbers",
    ),
    "computes-wrongly-once-it-is-warm": (
        products_with_a_wrong_bit(torch.float64, lambda count: count == 30),
        r"float64 products of the same numbers differ|it computes wrongly: 1 of 16384 numbers of a float64 product",
    ),
    "a-copy": (copies_with_wrong_bits, r"copies to it and back: 1 of 8192 words are not what was sent"),
}


@pytest.mark.parametrize(("plant", "words"), FAULTS.values(), ids=FAULTS.keys())
def test_a_planted_fault_is_found(
    monkeypatch: pytest.MonkeyPatch, plant: Callable[[pytest.MonkeyPatch], None], words: str
) -> None:
    plant(monkeypatch)
    with pytest.raises(WrongResultError, match=words):
        run(3.0)


def test_links_are_copied_over_both_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    found = exercise_links([CPU, CPU, CPU], 0.0, lambda _: None)
    assert [(link["from"], link["to"]) for link in found] == [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)]
    assert all(link["gb_per_second"] > 0 and link["direct"] is False for link in found)
    assert exercise_links([CPU], 0.0, lambda _: None) == []
    copies_with_wrong_bits(monkeypatch)
    with pytest.raises(WrongResultError, match="copies from GPU 0 to GPU 1: 1 of 8192 words are not what was sent"):
        exercise_links([CPU, CPU], 0.0, lambda _: None)


def others_take_memory(monkeypatch: pytest.MonkeyPatch, after: int, text: str = "CUDA out of memory. Tried to allocate") -> None:
    right, count = torch.empty, 0

    def empty(*shape: Any, **settings: Any) -> torch.Tensor:
        nonlocal count
        count += 1
        if count > after:
            raise RuntimeError(text)
        return right(*shape, **settings)

    monkeypatch.setattr(torch, "empty", empty)


def test_memory_that_others_take_meanwhile_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    others_take_memory(monkeypatch, after=2)
    chunks, _ = take_memory(CPU)
    assert len(chunks) == 1  # what the comparison needs is given back


@pytest.mark.parametrize(
    ("after", "text"), [(0, "CUDA out of memory"), (1, "CUDA out of memory"), (2, "CUDA error: an illegal memory access")]
)
def test_no_memory_and_other_errors_are_raised(monkeypatch: pytest.MonkeyPatch, after: int, text: str) -> None:
    others_take_memory(monkeypatch, after, text)
    with pytest.raises(RuntimeError, match=text):
        take_memory(CPU)


def lines(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[dict[str, Any]]:
    burn_in_tests.main(arguments)
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_the_child_says_what_it_does(capsys: pytest.CaptureFixture[str]) -> None:
    assert lines(capsys, "find", "--device", "cpu") == [
        {"ready": True},
        {"devices": [{"device": "cpu", "model": "CPU", "uuid": ""}]},
        {"done": 1},
    ]
    first, described, *progress, found, last = lines(capsys, "device", "--device", "cpu", "--seconds", "0.1")
    assert (first, described, last) == ({"ready": True}, {"device": "cpu", "model": "CPU", "uuid": ""}, {"done": 1})
    assert {line["test"] for line in progress} >= {"memory"}
    assert set(found["figures"]) == {"memory", "products", "copies"}


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (RuntimeError("CUDA error: unspecified launch failure"), {"error": "CUDA error: unspecified launch failure"}),
        (RuntimeError("CUBLAS_STATUS_EXECUTION_FAILED when calling"), {"error": "CUBLAS_STATUS_EXECUTION_FAILED when calling"}),
        (NotImplementedError("no such kernel"), {"untested": "NotImplementedError: no such kernel"}),
        (WrongResultError("it computes wrongly"), {"error": "it computes wrongly"}),
    ],
)
def test_the_child_tells_a_fault_from_what_torch_cannot(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], raised: Exception, expected: dict[str, str]
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise raised

    monkeypatch.setattr(torch, "matmul", fail)
    *_, said, last = lines(capsys, "device", "--device", "cpu", "--seconds", "0")
    assert (said, last) == (expected, {"done": 1})
