"""Ours and an original of our own making, for real: both give a rate."""

import json
from pathlib import Path

import pytest

from benchmarks.trainer.__main__ import BROKEN, KEPT, main

pytestmark = pytest.mark.e2e
# As the original does it: .cuda() without asking, device_ids, and a line for each step.
ORIGINAL = """
import sys, time
import torch
from torch.nn.parallel import DistributedDataParallel
torch.cuda.set_device(0)
torch.distributed.init_process_group("gloo", init_method="env://")
model = DistributedDataParallel(torch.nn.Linear(8, 2).cuda(0), device_ids=[0])
for step in range(6):
    began = time.time()
    model(torch.rand(4, 8).cuda(0, non_blocking=True)).sum().backward()
    time.sleep(0.05)
    print(f"Epoch: [0][{step}/6]\\tTime {time.time() - began:6.3f} ( 0.0)\\tData 0.0", flush=True)
"""


def test_rates_of_both(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    original = tmp_path / "main.py"
    original.write_text(ORIGINAL)
    sizes = ["--arch", "squeezenet1_1", "--batch", "4", "--steps", "6", "--repeat", "1"]
    status = main(["--upstream", str(original), "--only", "original,ours", *sizes])
    told = capsys.readouterr().out
    assert status in (KEPT, BROKEN), told
    figures = json.loads(told.splitlines()[-1])
    assert 0 < figures["original_images_per_second"] <= 4 / 0.05
    assert figures["ours_images_per_second"] > 0
    assert figures["device"] == "cpu"
