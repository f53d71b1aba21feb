"""The check of a machine before it joins. No GPU is needed: programs stand for the test of one, and a CPU for the GPU itself."""

import itertools
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from ebb.elastic.launch import hardware_check
from ebb.elastic.launch.hardware_check import GpuTest, find_fault, is_wanted, warn_of_little_space
from tests.elastic.machines import until
from tests.elastic.test_faults import HARDWARE, MEMORY

SCRIPT = Path(__file__).with_name("with_gpus.py")
READY, GPU = '{"ready": true}', '{"gpu": 1, "model": "H100"}'
UNTESTED = "this machine's GPUs could not be tested (`python -m ebb.elastic.launch.hardware_check` shows why)"
MORE = "; `nvidia-smi -q` and `dmesg | grep Xid` there say more, EBB_HARDWARE_CHECK=off skips the check"


def program(*lines: str, then: str = "") -> str:
    """A test's child that writes these lines."""
    return f"import os, time\nfor line in {list(lines)!r}: print(line, flush=True)\n{then}"


def a_test(text: str, said: list[str], silent_seconds: float = 20.0) -> GpuTest:
    return GpuTest(command=[sys.executable, "-c", text], silent_seconds=silent_seconds, say=said.append)


def error(text: str) -> str:
    return json.dumps({"error": text})


@pytest.mark.parametrize(
    ("text", "silent_seconds", "fault"),
    [
        pytest.param(program(READY, GPU, '{"done": 2}'), 20, "", id="well"),
        pytest.param(program(READY, '{"done": 0}'), 20, None, id="none-that-cuda-sees"),
        pytest.param(program("a warning", "[]", READY, GPU, '{"done": 2}'), 20, "", id="beside-other-output"),
        pytest.param(
            program(READY, GPU, error("it computes wrongly"), '{"done": 2}'),
            20,
            "GPU 1 (H100) of this machine failed a test: it computes wrongly" + MORE,
            id="computes-wrongly",
        ),
        pytest.param(
            program(READY, error("CUDA unknown error")),
            20,
            "CUDA on this machine failed a test: CUDA unknown error" + MORE,
            id="no-gpu-at-all",
        ),
        pytest.param(
            program(READY, GPU, then="time.sleep(60)"),
            0.5,
            "GPU 1 (H100) of this machine did not answer a test for 0 s" + MORE,
            id="hangs",
        ),
        pytest.param(
            program(READY, then="time.sleep(60)"),
            0.5,
            "the GPUs of this machine did not answer a test for 0 s" + MORE,
            id="hangs-at-once",
        ),
        pytest.param(
            program(READY, GPU, then="os.kill(os.getpid(), 11)"),
            20,
            "GPU 1 (H100) of this machine: a test of it was killed by signal 11 (SIGSEGV)" + MORE,
            id="crashes",
        ),
    ],
)
def test_the_fault_of_a_gpu_is_a_sentence(text: str, silent_seconds: float, fault: str | None) -> None:
    said: list[str] = []
    assert a_test(text, said, silent_seconds).finish() == fault
    assert said == []


@pytest.mark.parametrize("text", HARDWARE)
def test_real_texts_of_hardware_are_faults_and_fit_into_the_controllers_line(text: str) -> None:
    gpu = '{"gpu": 11, "model": "NVIDIA H100 80GB HBM3"}'
    fault = a_test(program(READY, gpu, error(text), '{"done": 2}'), []).finish() or ""
    assert fault.startswith("GPU 11 (NVIDIA H100 80GB HBM3) of this machine failed a test: " + " ".join(text.split())[:60])
    assert len(f"[launcher 12:00:00] {fault}. This machine does not join the job") <= 300


@pytest.mark.parametrize(
    ("text", "words"),
    [
        *[
            (program(READY, GPU, error(each), '{"done": 2}'), "GPU 1 (H100) of this machine could not be tested: ")
            for each in MEMORY
        ],
        (
            program(READY, error("The NVIDIA driver on your system is too old (found version 11040).")),
            "CUDA on this machine could not be tested: The NVIDIA driver on your system is too old",
        ),
        (
            program(READY, error("CUDA error: all CUDA-capable devices are busy or unavailable")),
            "CUDA on this machine could not be tested: CUDA error: all CUDA-capable devices are busy",
        ),
        (program(READY, error("Found no NVIDIA driver on your system.")), "CUDA on this machine could not be"),
        (
            program(READY, GPU, then="os.kill(os.getpid(), 9)"),
            UNTESTED,
        ),
        (
            program(READY, GPU, then="raise KeyError"),
            UNTESTED,
        ),
        (
            program(then="import no_torch_here"),
            UNTESTED,
        ),
    ],
)
def test_a_test_that_cannot_run_is_no_fault(text: str, words: str) -> None:
    said: list[str] = []
    assert a_test(text, said).finish() is None
    assert len(said) == 1
    assert said[0].startswith(words)


def test_a_gpu_that_is_missing_in_the_second_test_is_a_fault(tmp_path: Path) -> None:
    """The others still pass: CUDA does not count one that has fallen off the bus."""
    text = program(READY, then=f"first = not os.path.exists({str(tmp_path / 'seen')!r})\nopen({str(tmp_path / 'seen')!r}, 'w')\n")
    test = a_test(text + "print('{\"done\": %d}' % (8 if first else 7))", [])
    assert test.finish() == ""
    assert test.finish() == "1 of this machine's 8 GPUs cannot be seen any more" + MORE


def test_a_test_that_hangs_is_ended(tmp_path: Path) -> None:
    text = program(READY, GPU, then=f"open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()))\ntime.sleep(60)")
    fault = a_test(text, [], 1.0).finish()
    assert fault == "GPU 1 (H100) of this machine did not answer a test for 1 s" + MORE
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_a_machine_without_gpus_starts_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware_check, "DEVICES", tmp_path)
    (tmp_path / "nvidiactl").touch()
    assert GpuTest.find(say=print) is None
    (tmp_path / "nvidia3").touch()
    assert GpuTest.find(say=print) is not None


@pytest.mark.parametrize(("word", "wanted"), [("", True), ("on", True), ("off", False)])
def test_it_can_be_switched_off(word: str, wanted: bool) -> None:
    assert is_wanted({"EBB_HARDWARE_CHECK": word}) is wanted
    assert is_wanted({}) is True


class OneCpu:
    """torch's view of two GPUs, which are the CPU."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys, cpu = capsys, torch.device("cpu")
        monkeypatch.setattr(torch.version, "cuda", "12.8")
        monkeypatch.setattr(torch, "device", lambda _kind, _number: cpu)
        for name, value in {"init": None, "device_count": 2, "get_device_name": "CPU", "mem_get_info": (2**22, 2**23)}.items():
            monkeypatch.setattr(torch.cuda, name, lambda *_, value=value: value)

    def lines(self) -> list[dict[str, Any]]:
        hardware_check.main()
        return [json.loads(line) for line in self._capsys.readouterr().out.splitlines()]


@pytest.fixture
def one_cpu(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> OneCpu:
    return OneCpu(monkeypatch, capsys)


def test_every_gpu_computes_what_the_cpu_does(one_cpu: OneCpu) -> None:
    assert one_cpu.lines() == [
        {"ready": True},
        {"gpu": 0, "model": ""},
        {"model": "CPU"},
        {"gpu": 1, "model": ""},
        {"model": "CPU"},
        {"done": 2},
    ]


def wrong_product(monkeypatch: pytest.MonkeyPatch) -> None:
    right = torch.Tensor.__matmul__

    def product(left: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        found = right(left, other)
        return found if found.dtype == torch.float32 else found.index_fill(0, torch.tensor([7]), 3.0)

    monkeypatch.setattr(torch.Tensor, "__matmul__", product)


def wrong_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    right = torch.Tensor.to
    monkeypatch.setattr(
        torch.Tensor, "to", lambda self, *to: right(self, *to) + 1 if self.dtype == torch.int32 else right(self, *to)
    )


def wrong_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    right = torch.full
    monkeypatch.setattr(torch, "full", lambda *given, **named: right(*given, **named).index_fill(0, torch.tensor([9]), 84))


def a_text(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("CUDA error: uncorrectable ECC error encountered")

    monkeypatch.setattr(torch, "full", fail)


@pytest.mark.parametrize(
    ("break_it", "words"),
    [
        (wrong_product, r"it computes wrongly: \d{3} of 262144 numbers of a torch.float16 product"),
        (wrong_copy, "a copy to it and back is not what was sent"),
        (wrong_memory, "its memory does not hold what was written"),
        (a_text, "CUDA error: uncorrectable ECC error encountered"),
    ],
)
def test_each_gpu_that_does_not_is_named(
    one_cpu: OneCpu, monkeypatch: pytest.MonkeyPatch, break_it: Callable[[pytest.MonkeyPatch], None], words: str
) -> None:
    break_it(monkeypatch)
    found = one_cpu.lines()
    errors = [line["error"] for before, line in itertools.pairwise(found) if "error" in line and before == {"model": "CPU"}]
    assert len(errors) == 2
    assert all(re.fullmatch(words, each) for each in errors), errors
    assert found[-1] == {"done": 2}


@pytest.mark.parametrize(
    ("hidden", "last"), [(None, {"error": "No CUDA GPUs are available"}), ("", {"done": 0}), ("-1", {"done": 0})]
)
def test_gpus_that_are_hidden_by_intent_are_not_missed(
    one_cpu: OneCpu, monkeypatch: pytest.MonkeyPatch, hidden: str | None, last: dict[str, Any]
) -> None:
    def fail() -> None:
        raise RuntimeError("No CUDA GPUs are available")

    monkeypatch.setattr(torch.cuda, "init", fail)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if hidden is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)
    assert one_cpu.lines() == [{"ready": True}, last]


NAMES = [name for _, name in socket.if_nameindex()]


@pytest.mark.parametrize(
    ("environment", "gpus", "words"),
    [
        pytest.param({}, True, "", id="well"),
        pytest.param({"GLOO_SOCKET_IFNAME": "lo"}, False, "", id="gloo"),
        pytest.param(
            {"GLOO_SOCKET_IFNAME": "lo,none7"},
            False,
            "GLOO_SOCKET_IFNAME is 'lo,none7', and this machine has no none7",
            id="no-gloo",
        ),
        pytest.param({"NCCL_SOCKET_IFNAME": "l"}, True, "", id="nccl-takes-the-beginning-of-a-name"),
        pytest.param({"NCCL_SOCKET_IFNAME": "=l"}, True, "NCCL_SOCKET_IFNAME is '=l', and no interface", id="or-a-whole-name"),
        pytest.param({"NCCL_SOCKET_IFNAME": "none7,=lo"}, True, "NCCL_SOCKET_IFNAME is 'none7,=lo'", id="of-all-names-or-none"),
        pytest.param({"NCCL_SOCKET_IFNAME": "^" + ",".join(NAMES)}, True, "NCCL_SOCKET_IFNAME is '^", id="or-all-but-those"),
        pytest.param({"NCCL_SOCKET_IFNAME": "^none7"}, True, "", id="all-but-one-that-is-not-there"),
        pytest.param({"NCCL_SOCKET_IFNAME": "none7"}, False, "", id="nccl-is-not-used-without-gpus"),
    ],
)
def test_the_interfaces_are_there(environment: dict[str, str], gpus: bool, words: str) -> None:
    found = find_fault("127.0.0.1", environment, gpus=gpus)
    assert found.startswith(words)
    assert bool(found) == bool(words)


@pytest.mark.parametrize("address", ["127.0.0.1", "localhost", "::1"])
def test_a_machine_that_reaches_itself_at_its_address(address: str) -> None:
    if address == "::1" and not socket.has_dualstack_ipv6():
        pytest.skip("no IPv6 here")
    assert find_fault(address, {}, gpus=False) == ""


def test_a_machine_that_cannot_be_reached_at_its_address() -> None:
    began = time.monotonic()
    found = find_fault("192.0.2.1", {}, gpus=False)  # of nobody, by RFC 5737
    assert found.startswith("this machine does not reach itself at '192.0.2.1', the address that it would give to the others: ")
    assert time.monotonic() - began < 10


@pytest.mark.parametrize(
    ("total_mib", "free_mib", "words"),
    [
        pytest.param(1024, 3, "/dev/shm of this machine has 3 of 1024 MiB left", id="filled-by-others"),
        pytest.param(1024, 40, "", id="room-enough"),
        pytest.param(8, 8, "", id="as-little-as-the-job-asked-for"),
    ],
)
def test_shared_memory(monkeypatch: pytest.MonkeyPatch, total_mib: int, free_mib: int, words: str) -> None:
    usage = shutil._ntuple_diskusage(total_mib << 20, 0, free_mib << 20)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    found = find_fault("127.0.0.1", {}, gpus=False)
    assert found.startswith(words)
    assert bool(found) == bool(words)


def test_a_full_output_folder_is_said_and_no_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    warn_of_little_space({}, said.append)
    warn_of_little_space({"EBB_OUTPUT_DIR": str(tmp_path / "not yet there")}, said.append)
    assert said == []
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(2**40, 0, 5 << 20))
    warn_of_little_space({"EBB_OUTPUT_DIR": str(tmp_path)}, said.append)
    assert said == [f"{tmp_path} has 5 MiB left: checkpoints may find no room"]


def launch(
    folder: Path, gpu_test: str, *arguments: str, silent_seconds: float = 20.0, **environment: str
) -> "subprocess.Popen[str]":
    """A launcher on a machine with a GPU, whose test this program stands for."""
    devices = folder / "devices"
    devices.mkdir()
    return subprocess.Popen(
        [sys.executable, str(SCRIPT), str(devices), str(silent_seconds), gpu_test, *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
    )


def there(folder: Path) -> str:
    """A script that no launcher comes to start."""
    (folder / "script.py").touch()
    return str(folder / "script.py")


NEVER = ["--nnodes=1:2", "--rdzv_backend=etcd3", "--rdzv_endpoint=127.0.0.1:9", "--rdzv_id=never"]  # it would wait for ever
WELL = program(READY, GPU, '{"done": 2}')


@pytest.mark.e2e
@pytest.mark.parametrize("flags", [[], ["-m"]], ids=["script", "module"])
def test_a_machine_whose_gpu_fails_does_not_join(tmp_path: Path, flags: list[str]) -> None:
    broken = program(READY, GPU, error("CUDA error: uncorrectable ECC error encountered"), '{"done": 2}')
    launcher = launch(tmp_path, broken, *NEVER, *flags, "trainer" if flags else there(tmp_path))
    _, said = launcher.communicate(timeout=120)
    assert launcher.returncode == 79, said
    last = said.strip().splitlines()[-1]  # what the controller passes on
    assert "GPU 1 (H100) of this machine failed a test: CUDA error: uncorrectable ECC error" in last
    assert "This machine does not join the job" in last
    assert "meeting the other machines" not in said


@pytest.mark.e2e
def test_a_notice_ends_a_test_that_hangs(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    hangs = program(READY, GPU, then=f"open({str(pid)!r}, 'w').write(str(os.getpid()))\ntime.sleep(600)")
    launcher = launch(tmp_path, hangs, *NEVER, there(tmp_path), silent_seconds=600)
    until("the test", lambda: pid.exists() and pid.read_text())
    launcher.send_signal(signal.SIGTERM)
    _, said = launcher.communicate(timeout=120)
    assert launcher.returncode == 138, said
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("raises", "code", "words", "starts"),
    [
        pytest.param("uncorrectable ECC error encountered", 79, "a GPU of this machine failed", 2, id="only-hardware-does-it"),
        pytest.param("unspecified launch failure", 1, "GPUs pass a test): the job ends", 4, id="a-program-may-do-it"),
    ],
)
def test_a_gpu_that_passes_a_test_after_a_fault_is_used_again(
    tmp_path: Path, raises: str, code: int, words: str, starts: int
) -> None:
    script, counts = tmp_path / "script.py", tmp_path / "starts"
    script.write_text(f"open({str(counts)!r}, 'a').write('x')\nraise RuntimeError('CUDA error: {raises}')\n")
    launcher = launch(tmp_path, WELL, "--standalone", str(script))
    _, said = launcher.communicate(timeout=120)
    assert launcher.returncode == code, said
    assert words in said
    assert len(counts.read_text()) == starts


@pytest.mark.e2e
def test_a_worker_is_believed_where_its_gpu_cannot_be_tested(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("raise RuntimeError('CUDA error: unspecified launch failure')\n")
    launcher = launch(tmp_path, program(READY, GPU, error(MEMORY[0]), '{"done": 2}'), "--standalone", str(script))
    _, said = launcher.communicate(timeout=120)
    assert launcher.returncode == 79, said
    assert said.count("could not be tested: CUDA out of memory") == 2


@pytest.mark.e2e
def test_a_gpu_that_fails_a_test_after_a_fault_is_left_at_once(tmp_path: Path) -> None:
    script, counts = tmp_path / "script.py", tmp_path / "starts"
    script.write_text(f"open({str(counts)!r}, 'a').write('x')\nraise RuntimeError('CUDA error: unspecified launch failure')\n")
    broken = program(READY, GPU, then=f"if os.path.exists({str(counts)!r}): os.abort()\nprint('{{\"done\": 2}}')")
    launcher = launch(tmp_path, broken, "--standalone", str(script))
    _, said = launcher.communicate(timeout=120)
    assert launcher.returncode == 79, said
    assert "unspecified launch failure; GPU 1 (H100) of this machine: a test of it was killed by signal 6" in said
    assert counts.read_text() == "x"


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("word", "code", "words"),
    [("off", 0, ""), ("on", 79, "computes wrongly"), ("never", 1, "EBB_HARDWARE_CHECK is 'never'; allowed: on, off")],
)
def test_the_check_as_a_setting(tmp_path: Path, word: str, code: int, words: str) -> None:
    (tmp_path / "script.py").write_text("")
    broken = program(READY, GPU, error("it computes wrongly"), '{"done": 2}')
    launcher = launch(tmp_path, broken, "--standalone", str(tmp_path / "script.py"), EBB_HARDWARE_CHECK=word)
    _, said = launcher.communicate(timeout=120)
    assert launcher.returncode == code, said
    assert words in said


@pytest.mark.e2e
def test_a_machine_that_others_cannot_reach_does_not_join(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "ebb.elastic.launch", *NEVER, "--local-addr=192.0.2.1", there(tmp_path)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 79, done.stderr
    assert "this machine does not reach itself at '192.0.2.1'" in done.stderr.splitlines()[-1]
