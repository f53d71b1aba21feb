"""Tests of the trainer share the machine's cores with each other: one thread each."""

import pytest
import torch


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    torch.set_num_threads(1)
