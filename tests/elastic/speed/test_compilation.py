"""torch.compile: said plainly when it cannot be, the same results when it can, and compiled once for many processes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from ebb.elastic.speed import CompileCache, Speed, compilation
from ebb.elastic.speed.compilation import NoCompilerError, missing_compiler

CPU = torch.device("cpu")
HERE = not missing_compiler(CPU, os.environ)

PROGRAM = """
import json, sys
from pathlib import Path
import torch
from ebb.elastic.speed import CompileCache, Speed
from torch._dynamo.utils import counters
cpu = torch.device("cpu")
cache = CompileCache(Path(sys.argv[1]), cpu)
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Tanh(), torch.nn.Linear(5, 2))
names = list(model.state_dict())
speed = Speed(compiled=True)
model = speed.prepare(model, cpu, cache)
output = model(torch.ones(3, 6))
output.sum().backward()
for share in (6, 2, 4):  # of other numbers of machines
    model(torch.ones(share, 6)).sum().backward()
with speed.uncompiled():
    plain = model(torch.ones(3, 6))
kept = cache.keep()
print(json.dumps({
    "hits": counters["inductor"]["fxgraph_cache_hit"] + counters["aot_autograd"]["autograd_cache_hit"],
    "misses": counters["inductor"]["fxgraph_cache_miss"] + counters["aot_autograd"]["autograd_cache_miss"],
    "graphs": counters["stats"]["unique_graphs"],
    "kept": kept is not None,
    "far": (output - plain).abs().max().item(),
    "same_names": names == list(model.state_dict()),
    "dtype": str(output.dtype),
}))
"""


def run(folder: Path, local: Path) -> dict[str, object]:
    environment = {
        **os.environ,
        "TORCHINDUCTOR_CACHE_DIR": str(local),
        "OMP_NUM_THREADS": "1",
        # Which vector units there are torch finds out by compiling a program for each: 50 s of two cores, and nothing of ours
        "TORCHINDUCTOR_VEC_ISA_OK": "0",
        "TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS": "0",  # repays itself after many kernels
    }
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(folder)], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.e2e
@pytest.mark.skipif(not HERE, reason="no C++ compiler")
def test_another_machine_finds_what_the_first_has_compiled(tmp_path: Path) -> None:
    """A file that is damaged costs time only. The network is of torch's own classes, which compile() alone leaves as it is.
    Nothing is compiled anew for the shares of other numbers of machines."""
    damaged = CompileCache(tmp_path / "job", CPU).folder / "0123.bin"
    damaged.parent.mkdir(parents=True)
    damaged.write_bytes(b"half a file")
    first = run(tmp_path / "job", tmp_path / "a")
    damaged.unlink()
    assert (first["graphs"], first["kept"], first["same_names"], first["dtype"]) == (1, True, True, "torch.float32")
    assert int(str(first["misses"])) > 0
    assert float(str(first["far"])) < 1e-5
    (file,) = (tmp_path / "job").rglob("*.bin")
    assert file.parent.name == f"torch-{torch.__version__}-cpu"
    second = run(tmp_path / "job", tmp_path / "b")
    assert (second["misses"], second["kept"]) == (0, False)
    assert int(str(second["hits"])) > 0


@pytest.mark.parametrize(
    ("device", "environment", "words"),
    [
        pytest.param("cpu", {"CXX": "no-such-compiler"}, "needs no-such-compiler for the cpu", id="cpu"),
        pytest.param("cuda", {"CC": "no-such-compiler"}, "needs no-such-compiler for the cuda", id="cuda-needs-C"),
    ],
)
def test_a_missing_compiler_is_said_with_the_fix(device: str, environment: dict[str, str], words: str) -> None:
    sentence = missing_compiler(torch.device(device), environment)
    assert words in sentence
    assert "apt-get install g++" in sentence
    assert "leave out --compile" in sentence


def test_without_a_compiler_it_is_refused_before_the_first_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda _: None)
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(NoCompilerError, match=r"--compile: torch.compile needs g\+\+ for the cpu, and there is none here"):
        Speed(compiled=True).prepare(torch.nn.Linear(1, 1), CPU)


def test_nothing_compiled_nothing_kept(tmp_path: Path) -> None:
    cache = CompileCache(tmp_path, CPU)
    assert cache.restore() == 0
    assert not list(tmp_path.iterdir())


def test_only_the_newest_files_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = CompileCache(tmp_path, CPU)
    contents = [bytes([number]) * 10 for number in range(12)]
    for number, content in enumerate(contents):
        monkeypatch.setattr(compilation, "_missed", lambda number=number: number + 1)
        monkeypatch.setattr(torch.compiler, "save_cache_artifacts", lambda content=content: (content, None))
        path = cache.keep()
        assert path is not None
        assert cache.keep() is None  # nothing new
        os.utime(path, (number, number))
    assert sorted(path.read_bytes() for path in cache.folder.glob("*.bin")) == sorted(contents[-8:])
