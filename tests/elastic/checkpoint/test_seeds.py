"""One file to go on from: as the original ImageNet example writes it, or a plain one of ours."""

from pathlib import Path
from typing import Any

import pytest
import torch

from ebb.elastic.checkpoint import ForeignCheckpointError, RefusedError
from ebb.elastic.checkpoint.seeds import load_optimizer, read_file
from ebb.elastic.checkpoint.state import load, weights


def network() -> torch.nn.Linear:
    torch.manual_seed(0)
    return torch.nn.Linear(4, 2)


def sgd(plain: torch.nn.Module, lr: float = 0.1, weight_decay: float = 1e-4) -> torch.optim.SGD:
    return torch.optim.SGD(plain.parameters(), lr=lr, momentum=0.9, weight_decay=weight_decay)


def original(path: Path, **changes: Any) -> Path:
    """The example's dict: epoch is the one just done, best_acc1 a tensor, the network wrapped for several processes."""
    plain = network()
    optimizer = sgd(plain)
    plain(torch.ones(1, 4)).sum().backward()
    optimizer.step()
    wrapped = {f"module.{name}": tensor for name, tensor in plain.state_dict().items()}
    state = {
        **{"epoch": 2, "arch": "resnet18", "best_acc1": torch.tensor(61.5)},
        **{"state_dict": wrapped, "optimizer": optimizer.state_dict()},
        **changes,
    }
    torch.save({name: value for name, value in state.items() if value is not None}, path)
    return path


def test_the_originals_file_is_gone_on_from_at_the_next_epoch(tmp_path: Path) -> None:
    origin = read_file(original(tmp_path / "checkpoint.pth"), arch="resnet18", identity={"seed": 0})
    assert (origin.epochs, origin.step) == (3, None)
    assert origin.step_at(dataset_size=100, global_batch=10) == 30
    assert origin.step_at(dataset_size=101, global_batch=10) == 30  # 303 samples: three of step 30 are used again, none is lost
    saved = load(origin.content)
    plain = network()
    plain.load_state_dict(weights(saved))
    optimizer = sgd(plain, lr=0.5, weight_decay=5e-4)
    load_optimizer(optimizer, saved["optimizer"])
    [group] = optimizer.param_groups
    assert (group["lr"], group["weight_decay"], group["momentum"]) == (0.5, 5e-4, 0.9)
    assert torch.equal(optimizer.state[plain.bias]["momentum_buffer"], saved["optimizer"]["state"][1]["momentum_buffer"])


def test_ours_knows_its_step(tmp_path: Path) -> None:
    path = original(tmp_path / "x.pth", step=17, identity={"seed": 0})
    assert read_file(path, arch="resnet18", identity={"seed": 0}).step_at(dataset_size=101, global_batch=10) == 17


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        pytest.param({"arch": "resnet50"}, "arch is 'resnet18' here and must be 'resnet50' as in the file", id="another-model"),
        pytest.param({"identity": {"seed": 4}}, "seed is 0 here and must be 4", id="another-run-of-ours"),
    ],
)
def test_another_runs_file_is_refused(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ForeignCheckpointError, match=words):
        read_file(original(tmp_path / "x.pth", **changes), arch="resnet18", identity={"seed": 0})


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        pytest.param({"state_dict": None}, r"lacks \['state_dict'\]", id="no-weights"),
        pytest.param({"epoch": "two"}, "lacks a usable epoch", id="epoch-is-a-word"),
    ],
)
def test_a_file_that_is_none_is_a_sentence(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(RefusedError, match=words):
        read_file(original(tmp_path / "x.pth", **changes), arch="resnet18", identity={})


def test_a_missing_and_a_torn_file_are_sentences(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match="cannot be read: No such file"):
        read_file(tmp_path / "nowhere", arch="x", identity={})
    path = original(tmp_path / "x.pth")
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(RefusedError, match="cannot be read as tensors"):
        read_file(path, arch="x", identity={})


def test_an_optimizer_that_does_not_fit_is_a_sentence() -> None:
    with pytest.raises(RefusedError, match="does not fit SGD"):
        load_optimizer(sgd(network()), sgd(torch.nn.Sequential(network(), network())).state_dict())
