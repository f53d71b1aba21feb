"""The measuring half of a burn-in (burn_in.py): memory, matrix products and copies of one device, and copies between devices.

    python -m ebb.elastic.launch.burn_in_tests find --device cuda            # which devices there are
    python -m ebb.elastic.launch.burn_in_tests device --device cuda:0 --seconds 60
    python -m ebb.elastic.launch.burn_in_tests links --device cuda:0,cuda:1 --seconds 6

A child process of its own for each device, since CUDA's errors stick to a process, a broken driver hangs, and a crash is then
that device's. It prints one JSON object a line, the last words before a hang or a crash included. Every test takes any torch
device: on `cpu` the same lines run on the machine's own memory and cores, with less of both.
Nothing is judged here but results that are wrong; slow ones are for burn_in.py, which sees all devices.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import torch

from ebb.compat import dataclass
from ebb.elastic.faults import Fault, known_fault
from ebb.elastic.launch.hardware_check import tell

GIB: Final = 2**30
MEMORY, PRODUCTS, COPIES, LINKS = "memory", "products", "copies", "links"
# Of a device's time. Products heat the chip, which is what brings its weak parts out; the other two are through with a modern GPU
# in seconds and go on to find what fails now and then.
SHARES: Final = {MEMORY: 0.3, PRODUCTS: 0.6, COPIES: 0.1}
_TELL_SECONDS = 1.0  # between two words of a child: far below the silence that counts as a hang
_BATCH_SECONDS = 0.25  # of work that is queued before results are looked at

# --- Memory ---
# As memory tests have it: all bits off and on, both alternations, and in each word its own address and the inverse of that,
# which find words that are written to in another's place.
_CONSTANTS: Final = {"0x00": 0, "0xff": -1, "0x55": 0x5555555555555555, "0xaa": ~0x5555555555555555}
_ADDRESS, _INVERSE = "its address", "the inverse of its address"
_WORD_BYTES = 8
_CHUNK_WORDS = GIB // _WORD_BYTES
_PART_WORDS = 2**23  # 64 MiB: the memory that a comparison itself needs is two of these and a mask
_CPU_MEMORY_BYTES = GIB // 4  # of a container's limit, which nothing says; a test of the machine's RAM is not what this is for
_RESERVE_BYTES = GIB // 2  # for the comparison, and for what the driver takes meanwhile

# --- Products ---
_SIZES: Final = (128, 256, 512, 1024, 2048, 4096, 8192)
_FIRST_SIZE: Final = {"cuda": 1024, "cpu": 128}  # smaller ones measure how long a kernel takes to start
_LONGEST_PRODUCT_SECONDS = 0.1  # so that slow precisions of small GPUs do not take all the time
_PERIOD = 64  # of the rows of one factor and the columns of the other: so many rows and columns of the result are computed here
_INTEGERS: Final = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}

_COPY_BYTES = 2**26
_LINK_BYTES = 2**28
_OF_CUDA = re.compile(r"CUDA|CUBLAS|NVML|NVIDIA|accelerator|driver", re.IGNORECASE)

Report = Callable[[str], None]
"""Takes a few words about how far a test is."""


class WrongResultError(Exception):
    """A result that is not the right one: the device is broken."""


@dataclass(frozen=True)
class Precision:
    """Numbers of a matrix product. `matmul`: torch's word for the precision of float32 products."""

    name: str
    dtype: torch.dtype
    matmul: str = "highest"


class Stopwatch:
    """Seconds that a device works on what is queued within `running`; they can be read once it has finished."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._events: list[tuple[Any, Any]] = []
        self._seconds = 0.0

    @contextlib.contextmanager
    def running(self, counts: bool = True) -> Iterator[None]:
        if not counts:
            yield
        elif self._device.type == "cuda":
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
            stream = torch.cuda.current_stream(self._device)
            start.record(stream)
            yield
            end.record(stream)
            self._events.append((start, end))
        else:
            began = time.perf_counter()
            yield
            self._seconds += time.perf_counter() - began

    def seconds(self) -> float:
        """Wait for the device."""
        finish(self._device)
        self._seconds += sum(start.elapsed_time(end) for start, end in self._events) / 1000
        self._events = []
        return self._seconds


def finish(device: torch.device) -> None:
    """Wait for what is queued on the device; its errors are raised here."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def exercise(device: torch.device, seconds: float, report: Callable[[str, str], None]) -> dict[str, Any]:
    """The figures of all tests of one device. Raises WrongResultError, and torch's errors."""
    tests = {MEMORY: exercise_memory, PRODUCTS: exercise_products, COPIES: exercise_copies}
    found = {}
    if device.type == "cuda":
        torch.cuda.set_device(device)
    for name, test in tests.items():
        found[name] = test(device, seconds * SHARES[name], functools.partial(report, name))
        if device.type == "cuda":
            torch.cuda.empty_cache()
    return found


def exercise_memory(device: torch.device, seconds: float, report: Report) -> dict[str, Any]:
    """Write all free memory with each pattern, then read all of it; again until the time is over, once in any case."""
    chunks, total_bytes = take_memory(device)
    words = sum(chunk.numel() for chunk in chunks)
    base = torch.arange(min(_PART_WORDS, words), dtype=torch.int64, device=device)
    scratch, mask = torch.empty_like(base), torch.empty(base.numel(), dtype=torch.bool, device=device)
    writing, reading, passes, timed, deadline = Stopwatch(device), Stopwatch(device), 0, 0, time.monotonic() + seconds
    report(f"{words * _WORD_BYTES / GIB:.3g} GiB")
    while True:
        for pattern in (*_CONSTANTS, _ADDRESS, _INVERSE):
            is_timed = pattern in _CONSTANTS  # nothing but the memory itself is read and written
            with writing.running(is_timed):
                for part, first in _parts(chunks):
                    _write(part, pattern, first, base)
            wrong = torch.zeros((), dtype=torch.int64, device=device)
            with reading.running(is_timed):
                for part, first in _parts(chunks):
                    wrong += _differences(part, pattern, first, base=base, scratch=scratch, mask=mask)
            finish(device)
            if count := int(wrong):
                held = f"the pattern {pattern}" if pattern in _CONSTANTS else pattern
                raise WrongResultError(f"its memory: {count} of {words} words do not hold {held}")
            passes, timed = passes + 1, timed + is_timed
            if passes > len(_CONSTANTS) + 1 and time.monotonic() > deadline:
                moved = timed * words * _WORD_BYTES / 1e9
                return {
                    "tested_gib": round(words * _WORD_BYTES / GIB, 2),
                    "total_gib": round(total_bytes / GIB, 2),
                    "patterns_written": passes,
                    "write_gb_per_second": _rounded(moved / writing.seconds()),
                    "read_gb_per_second": _rounded(moved / reading.seconds()),
                }
            report(f"{words * _WORD_BYTES / GIB:.3g} GiB, {passes} patterns written and read")


def take_memory(device: torch.device) -> tuple[list[torch.Tensor], int]:
    """Chunks of all memory that is free, less what the test itself needs, and the size of all memory in bytes."""
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        wanted = max(free - _RESERVE_BYTES, free // 2)
    else:
        wanted, total = _CPU_MEMORY_BYTES, _CPU_MEMORY_BYTES
    chunks: list[torch.Tensor] = []
    left = wanted // _WORD_BYTES
    while left:
        try:
            chunks.append(torch.empty(min(left, _CHUNK_WORDS), dtype=torch.int64, device=device))
        except RuntimeError as error:
            # Somebody else has taken memory since it was counted: what there is is tested.
            if known_fault(str(error)) is not Fault.MEMORY or not chunks:
                raise
            chunks.pop()  # the comparison needs room too
            if not chunks:
                raise
            break
        left -= chunks[-1].numel()
    return chunks, total


def _parts(chunks: Sequence[torch.Tensor]) -> Iterator[tuple[torch.Tensor, int]]:
    """Parts of the memory, each with the number of its first word."""
    first = 0
    for chunk in chunks:
        for part in torch.split(chunk, _PART_WORDS):
            yield part, first
            first += part.numel()


def _write(part: torch.Tensor, pattern: str, first: int, base: torch.Tensor) -> None:
    if pattern in _CONSTANTS:
        part.fill_(_CONSTANTS[pattern])
        return
    torch.add(base[: part.numel()], first, out=part)
    if pattern == _INVERSE:
        part.bitwise_not_()


def _differences(
    part: torch.Tensor, pattern: str, first: int, *, base: torch.Tensor, scratch: torch.Tensor, mask: torch.Tensor
) -> torch.Tensor:
    """The number of words that are not what was written, still on the device."""
    size = part.numel()
    if pattern in _CONSTANTS:
        return torch.ne(part, _CONSTANTS[pattern], out=mask[:size]).sum()
    found = scratch[:size]
    if pattern == _INVERSE:
        torch.bitwise_not(part, out=found)
        found.sub_(first)
    else:
        torch.sub(part, first, out=found)
    return torch.ne(found, base[:size], out=mask[:size]).sum()


def precisions(device: torch.device) -> list[Precision]:
    """Those that the device computes in hardware."""
    found = [Precision("float64", torch.float64), Precision("float32", torch.float32)]
    if device.type != "cuda":
        return [*found, Precision("bfloat16", torch.bfloat16)]
    half = [Precision("float16", torch.float16)]
    if torch.cuda.get_device_capability(device) < (8, 0):
        return found + half
    return [*found, Precision("tf32", torch.float32, "high"), *half, Precision("bfloat16", torch.bfloat16)]


def exercise_products(device: torch.device, seconds: float, report: Report) -> dict[str, Any]:
    """TFLOP/s of each precision; the time is shared between them."""
    if device.type == "cuda":
        # Sums of parts of a product stay in float32, or the exact result depends on how cuBLAS cuts it.
        torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    asked = precisions(device)
    found = {}
    before = torch.get_float32_matmul_precision()
    try:
        for precision in asked:
            torch.set_float32_matmul_precision(precision.matmul)
            found[precision.name] = _multiply(device, precision, seconds / len(asked), report)
    finally:
        torch.set_float32_matmul_precision(before)
    return found


def _multiply(device: torch.device, precision: Precision, seconds: float, report: Report) -> dict[str, Any]:
    """Multiply until the time is over; compare each result bit for bit with the first, and whole numbers with what they are."""
    size = _size(device, precision)
    left, right, expected = whole_numbers(device, precision.dtype, size)
    first, found = torch.empty_like(left), torch.empty_like(left)
    mask = torch.empty(left.shape, dtype=torch.bool, device=device)
    _check_exact(left, right, expected, found=first, mask=mask, name=precision.name)
    factors = (left, right) if device.type != "cuda" else _any_numbers(device, precision.dtype, size)
    torch.matmul(*factors, out=first)
    bits = _INTEGERS[first.element_size()]
    watch, products, deadline = Stopwatch(device), 0, time.monotonic() + seconds
    while True:
        wrong = torch.zeros((), dtype=torch.int64, device=device)
        batch_ends, before = time.monotonic() + _BATCH_SECONDS, products
        while products == before or (time.monotonic() < batch_ends and products - before < 16):
            with watch.running():
                torch.matmul(*factors, out=found)
            wrong += torch.ne(found.view(bits), first.view(bits), out=mask).sum()
            products += 1
        if count := int(wrong):
            raise WrongResultError(f"{precision.name} products of the same numbers differ in {count} numbers")
        _check_exact(left, right, expected, found=found, mask=mask, name=precision.name)
        teraflops = 2 * size**3 * products / watch.seconds() / 1e12
        if time.monotonic() > deadline:
            return {"tflops": _rounded(teraflops), "size": size, "products": products}
        report(f"{precision.name} {_rounded(teraflops):g} TFLOP/s")


def _size(device: torch.device, precision: Precision) -> int:
    """Rows of square matrices: the largest of which a product does not take long, and that the free memory has room for."""
    first = _FIRST_SIZE[device.type]
    left, right, _ = whole_numbers(device, precision.dtype, first)
    torch.matmul(left, right)  # the first one loads the library
    watch = Stopwatch(device)
    with watch.running():
        torch.matmul(left, right)
    room = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else _CPU_MEMORY_BYTES
    taken = watch.seconds()
    fitting = [
        size
        for size in _SIZES
        if taken * (size / first) ** 3 <= _LONGEST_PRODUCT_SECONDS and 8 * size**2 * left.element_size() <= room
    ]
    return max(fitting, default=_SIZES[0])


def whole_numbers(device: torch.device, dtype: torch.dtype, size: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Square matrices of -1, 0 and 1, whose product is exact in all precisions, and 64 x 64 numbers of which it consists.

    Rows of the left one and columns of the right one repeat after 64, and with them those of the result: so it is computed here
    in integers, over the whole length, while the device computes all of it.
    """
    random = torch.Generator().manual_seed(size)
    rows = torch.randint(-1, 2, (_PERIOD, size), generator=random)
    columns = torch.randint(-1, 2, (size, _PERIOD), generator=random)
    expected = rows @ columns
    times = size // _PERIOD
    left, right = rows.to(device, dtype).repeat(times, 1), columns.to(device, dtype).repeat(1, times)
    return left, right, expected.to(dtype).to(device)


def _any_numbers(device: torch.device, dtype: torch.dtype, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Factors with random bits, which make a GPU draw more power than whole numbers do.

    On one stream cuBLAS gives the same bits for the same factors each time (its documentation, "Results reproducibility"). CPU
    libraries promise that for whole numbers alone.
    """
    random = torch.Generator(device=device).manual_seed(size)
    left = torch.randn((size, size), generator=random, device=device, dtype=dtype)
    return left, torch.randn((size, size), generator=random, device=device, dtype=dtype)


def _check_exact(
    left: torch.Tensor,
    right: torch.Tensor,
    expected: torch.Tensor,
    *,
    found: torch.Tensor,
    mask: torch.Tensor,
    name: str,
) -> None:
    torch.matmul(left, right, out=found)
    shape = (len(left) // _PERIOD, _PERIOD, len(left) // _PERIOD, _PERIOD)
    if count := int(torch.ne(found.view(shape), expected.view(1, _PERIOD, 1, _PERIOD), out=mask.view(shape)).sum()):
        raise WrongResultError(f"it computes wrongly: {count} of {found.numel()} numbers of a {name} product")


def exercise_copies(device: torch.device, seconds: float, report: Report) -> dict[str, Any]:
    """Copy to the device and back, with other numbers each time, until the time is over; GB/s of both ways."""
    pinned = device.type == "cuda"
    try:
        sent, received = (torch.empty(_COPY_BYTES // _WORD_BYTES, dtype=torch.int64, pin_memory=pinned) for _ in range(2))
    except RuntimeError as error:  # the machine's limit of locked memory
        if known_fault(str(error)) is not Fault.MEMORY and "pin" not in str(error):
            raise
        pinned = False
        sent, received = (torch.empty(_COPY_BYTES // _WORD_BYTES, dtype=torch.int64) for _ in range(2))
    there = torch.empty(sent.numel(), dtype=torch.int64, device=device)
    random = torch.Generator().manual_seed(1)
    sent.random_(generator=random)
    to, back, copies, deadline = Stopwatch(device), Stopwatch(device), 0, time.monotonic() + seconds
    there.copy_(sent)  # the first copy is slower
    while True:
        sent.add_(1 + copies)
        with to.running():
            there.copy_(sent, non_blocking=True)
        with back.running():
            received.copy_(there, non_blocking=True)
        finish(device)
        if not torch.equal(sent, received):
            count = int((sent != received).sum())
            raise WrongResultError(f"copies to it and back: {count} of {sent.numel()} words are not what was sent")
        copies += 1
        if time.monotonic() > deadline:
            moved = copies * _COPY_BYTES / 1e9
            speeds = {"to_gb_per_second": _rounded(moved / to.seconds()), "from_gb_per_second": _rounded(moved / back.seconds())}
            return {**speeds, "pinned": pinned, "copies": copies}
        report(f"{copies} copies there and back")


def exercise_links(devices: Sequence[torch.device], seconds: float, report: Report) -> list[dict[str, Any]]:
    """Copy between all pairs of devices, both ways, each for its share of the time; [] for fewer than two devices."""
    pairs = [(a, b) for a in range(len(devices)) for b in range(len(devices)) if a != b]
    found = []
    for source, target in pairs:
        direct = _is_direct(devices[source], devices[target])
        speed = _copy_across(devices[source], devices[target], seconds / len(pairs), f"GPU {source} to GPU {target}")
        found.append({"from": source, "to": target, "direct": direct, "gb_per_second": speed})
        report(f"{source} to {target} {speed:g} GB/s")
    return found


def _copy_across(source: torch.device, target: torch.device, seconds: float, name: str) -> float:
    size = _LINK_BYTES // _WORD_BYTES if source.type == "cuda" else _COPY_BYTES // _WORD_BYTES
    sent, expected = (torch.arange(size, dtype=torch.int64, device=device) for device in (source, target))
    there, mask = torch.empty_like(expected), torch.empty(size, dtype=torch.bool, device=target)
    there.copy_(sent)  # the first one opens the way
    finish(source)
    copies, watch, deadline = 0, Stopwatch(source), time.monotonic() + seconds  # torch queues such a copy on the source's stream
    while True:
        sent.add_(1)
        expected.add_(1)
        finish(target)
        with watch.running():
            there.copy_(sent, non_blocking=True)
        copies += 1
        finish(source)
        if count := int(torch.ne(there, expected, out=mask).sum()):
            raise WrongResultError(f"copies from {name}: {count} of {size} words are not what was sent")
        if time.monotonic() > deadline:
            return _rounded(copies * size * _WORD_BYTES / watch.seconds() / 1e9)


def _is_direct(source: torch.device, target: torch.device) -> bool:
    """True where one GPU reads the other's memory, over NVLink or PCIe; else copies go through the host's memory."""
    return source.type == "cuda" and torch.cuda.can_device_access_peer(source, target)


def find(kind: str) -> list[torch.device]:
    """The devices of that kind (`cuda`: all), or those of a list such as cuda:0,cuda:1. Raises torch's errors."""
    if kind != "cuda":
        return [torch.device(each) for each in kind.split(",")]
    if torch.version.cuda is None:
        return []
    try:
        torch.cuda.init()  # type: ignore[no-untyped-call]
    except RuntimeError as error:
        if "No CUDA GPUs are available" in str(error) and "CUDA_VISIBLE_DEVICES" in os.environ:
            return []  # hidden by intent
        raise
    return [torch.device("cuda", number) for number in range(torch.cuda.device_count())]


def describe(device: torch.device) -> dict[str, str]:
    """Its name for torch, its model, and what no other one has."""
    if device.type != "cuda":
        return {"device": str(device), "model": "CPU", "uuid": ""}
    found = torch.cuda.get_device_properties(device)
    return {"device": str(device), "model": found.name, "uuid": str(getattr(found, "uuid", ""))}  # since torch 2.3


def main(arguments: Sequence[str]) -> None:
    """The child. Whatever happens to it is said in its last line, or by its silence."""
    parser = argparse.ArgumentParser(prog="python -m ebb.elastic.launch.burn_in_tests", description=__doc__)
    parser.add_argument("test", choices=["find", "device", "links"])
    parser.add_argument("--device", default="cuda", help="cuda, or a list such as cuda:0,cuda:1 or cpu")
    parser.add_argument("--seconds", type=float, default=10.0)
    asked = parser.parse_args(arguments)
    tell(ready=True)
    devices: list[torch.device] = []
    try:
        devices = find(asked.device)
        if asked.test == "find":
            tell(devices=[describe(device) for device in devices])
        elif asked.test == "links":
            tell(figures=exercise_links(devices, asked.seconds, _ProgressLines(LINKS).tell))
        else:
            for number, device in enumerate(devices):
                tell(**({"gpu": device.index or number} if device.type == "cuda" else {}), **describe(device))
                tell(figures=exercise(device, asked.seconds, _tell_progress()))
    except WrongResultError as error:
        tell(error=str(error))
    except Exception as error:  # whatever torch raises: what CUDA says is judged by the launcher, the rest is no GPU's fault
        text = str(error) or type(error).__name__
        if known_fault(text) or _OF_CUDA.search(text):
            tell(error=text)
        else:
            tell(untested=f"{type(error).__name__}: {text}")
    tell(done=len(devices))


class _ProgressLines:
    """Words about one test, at most one a second."""

    def __init__(self, test: str) -> None:
        self._test, self._told_at = test, 0.0

    def tell(self, words: str) -> None:
        if time.monotonic() - self._told_at >= _TELL_SECONDS:
            self._told_at = time.monotonic()
            tell(test=self._test, progress=words)


def _tell_progress() -> Callable[[str, str], None]:
    each = {name: _ProgressLines(name) for name in SHARES}
    return lambda test, words: each[test].tell(words)


def _rounded(value: float) -> float:
    """Three digits are what such a measurement is good for."""
    return float(f"{value:.4g}")


if __name__ == "__main__":
    main(sys.argv[1:])
