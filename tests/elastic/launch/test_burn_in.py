"""The burn-in of a machine: what the launcher makes of its children's words, and the launcher with a real one on its CPU.

Programs stand for the children where the answer counts; test_burn_in_tests.py has what those measure. No GPU is needed.
"""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ebb.elastic.launch import burn_in, hardware_check
from ebb.elastic.launch.burn_in import BurnIn, find_slow, machine_id, seconds_of
from tests.elastic.machines import until

SCRIPT = Path(__file__).with_name("with_burn_in.py")
ADVICE = "; `nvidia-smi -q` and `dmesg | grep Xid` there say more"


def figures(speed: float = 100.0) -> dict[str, Any]:
    return {
        "memory": {
            "tested_gib": 78.5,
            "total_gib": 79.2,
            "patterns_written": 12,
            "write_gb_per_second": 20 * speed,
            "read_gb_per_second": 18 * speed,
        },
        "products": {"float32": {"tflops": speed, "size": 8192, "products": 9}},
        "copies": {"to_gb_per_second": speed / 2, "from_gb_per_second": speed / 2, "pinned": True, "copies": 3},
    }


def child(then: str = "", *, count: int = 2, speeds: tuple[float, ...] = (100.0, 100.0)) -> list[str]:
    """A child that finds GPUs, tests them well, and does `then` on its way, where `what` is its test and `device` its GPU."""
    found = [{"device": f"cuda:{number}", "model": "H100", "uuid": f"u{number}"} for number in range(count)]
    links = [link(0, 1, 400.0), link(1, 0, 401.0)]
    text = f"""
import json, os, sys, time
def tell(**words): print(json.dumps(words), flush=True)
what, device = sys.argv[1], sys.argv[3]
tell(ready=True)
if what == "find":
    tell(devices={found!r})
elif what == "device":
    tell(gpu=int(device[-1]), device=device, model="H100", uuid="u")
    tell(test="memory", progress="3 patterns written and read")
{then and "    " + then}
    tell(figures=[{", ".join(repr(figures(speed)) for speed in speeds)}][int(device[-1])])
else:
    tell(figures={links!r})
tell(done={count} if what == "find" else 1)
""".replace("'pinned': True", "'pinned': 1")
    return [sys.executable, "-c", text]


def a_burn_in(command: list[str], said: list[str], **settings: Any) -> BurnIn:
    settings = {"silent_seconds": 20.0, **settings}
    return BurnIn(10.0, devices="cuda", say=said.append, command=command, **settings)


def test_a_machine_that_passes_says_its_figures_and_keeps_them(tmp_path: Path) -> None:
    said: list[str] = []
    test = a_burn_in(child(), said, folder=tmp_path / "burn-in", machine="n1-abc")
    assert test.run() == ""
    test.keep()
    kept = json.loads((tmp_path / "burn-in" / "n1-abc.json").read_text())
    assert [device["device"] for device in kept["devices"]] == ["cuda:0", "cuda:1"]
    assert kept["devices"][0]["products"]["float32"]["tflops"] == 100.0
    assert (len(kept["links"]), kept["slow"]) == (2, [])
    assert said[0] == "burn-in: testing this machine for about 10 s before it begins work"
    assert (
        "burn-in: cuda:1 (H100): 78.5 of 79.2 GiB hold 12 patterns, written at 2000 GB/s; TFLOP/s: float32 100; "
        "copies 50 GB/s to it and 50 back"
    ) in said
    assert "burn-in: 2 links over NVLink or PCIe: 400 to 401 GB/s" in said
    assert said[-1] == f"burn-in: done: {json.dumps(kept)}"


FAULTS = {
    "a-wrong-result": (
        "if device == 'cuda:1': tell(error='its memory: 3 of 9 words do not hold the pattern 0x55'); sys.exit()",
        "GPU 1 (H100) of this machine failed a test: its memory: 3 of 9 words do not hold the pattern 0x55",
    ),
    "an-error-of-cuda": (
        "if device == 'cuda:0': tell(error='CUDA error: uncorrectable ECC error encountered')",
        "GPU 0 (H100) of this machine failed a test: CUDA error: uncorrectable ECC error encountered",
    ),
    "a-crash": (
        "if device == 'cuda:1': os.kill(os.getpid(), 11)",
        "GPU 1 (H100) of this machine: a test of it was killed by signal 11 (SIGSEGV)",
    ),
}


@pytest.mark.parametrize(("then", "fault"), FAULTS.values(), ids=FAULTS.keys())
def test_the_gpu_that_fails_is_named_though_all_work_at_once(then: str, fault: str) -> None:
    assert a_burn_in(child(then), []).run() == fault + ADVICE


def test_a_gpu_that_hangs_is_named_and_its_test_ended(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    then = f"if device == 'cuda:1': open({str(pid)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    fault = a_burn_in(child(then), [], silent_seconds=2.0).run()
    assert fault == "GPU 1 (H100) of this machine did not answer a test for 2 s" + ADVICE
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)


def test_two_broken_gpus_are_both_said_and_one_is_the_fault() -> None:
    said: list[str] = []
    fault = a_burn_in(child("tell(error='CUDA error: unknown error'); sys.exit()"), said).run()
    assert fault.startswith("GPU 0 (H100) of this machine failed a test: CUDA error: unknown error")
    assert said[-1].startswith("burn-in: GPU 1 (H100) of this machine failed a test: CUDA error: unknown error")


def test_the_sentence_fits_into_the_controllers_line() -> None:
    error = "it computes wrongly: 67108864 of 67108864 numbers of a bfloat16 product"
    then = f"tell(gpu=11, model='NVIDIA H100 80GB HBM3', error={error!r}); sys.exit()"
    fault = a_burn_in(child(then), []).run()
    assert error in fault
    assert len(f"[launcher 12:00:00] {fault}. This machine does not join the job") <= 300


UNTESTED = {
    "somebody-else-has-the-memory": "tell(error='CUDA out of memory. Tried to allocate 1024.00 MiB'); sys.exit()",
    "a-torch-that-cannot": "tell(untested='NotImplementedError: addmm'); tell(done=1); sys.exit()",
    "killed-from-outside": "os.kill(os.getpid(), 9)",
}


@pytest.mark.parametrize("then", UNTESTED.values(), ids=UNTESTED.keys())
def test_what_cannot_be_tested_is_no_fault_and_is_tried_again_next_time(tmp_path: Path, then: str) -> None:
    said: list[str] = []
    test = a_burn_in(child(then), said, folder=tmp_path, machine="n1")
    assert test.run() == ""
    test.keep()
    assert [line for line in said if "could not be tested" in line]
    assert not list(tmp_path.iterdir())


def test_a_machine_without_any_device_is_said_and_goes_on() -> None:
    said: list[str] = []
    test = a_burn_in(child(count=0), said)
    assert (test.run(), test.untested) == ("", True)
    assert said[-1] == "burn-in: no device was found to test; going on"


def test_progress_is_said_while_a_test_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(burn_in, "PROGRESS_SECONDS", 0.0)
    said: list[str] = []
    go = tmp_path / "go"
    then = f'exec("while not os.path.exists({str(go)!r}): time.sleep(0.01)")'

    def say(text: str) -> None:
        said.append(text)
        if "memory: 3 patterns written and read, on the first of 2 devices" in text:
            go.touch()

    assert BurnIn(10.0, devices="cuda", say=say, command=child(then), silent_seconds=20.0).run() == ""
    assert go.exists()


def device(name: str, speed: float, model: str = "H100") -> dict[str, Any]:
    return {"device": name, "model": model, **figures(speed)}


def link(source: int, target: int, speed: float, *, direct: bool = True) -> dict[str, Any]:
    return {"from": source, "to": target, "direct": direct, "gb_per_second": speed}


def test_a_slow_gpu_is_named_and_no_fault() -> None:
    said: list[str] = []
    test = a_burn_in(child(speeds=(100.0, 40.0)), said)
    assert test.run() == ""
    assert "cuda:1 (H100) is slow: TFLOP/s in float32 40, where the others of this machine have 100" in test.figures["slow"]
    assert [line for line in said if line.startswith("burn-in: cuda:1 (H100) is slow")]


ALIKE = [device(f"cuda:{number}", 100.0) for number in range(3)]


@pytest.mark.parametrize(
    ("devices", "links", "slow"),
    [
        pytest.param([*ALIKE, device("cuda:3", 80.0)], [], 0, id="as-they-differ"),
        pytest.param([*ALIKE, device("cuda:3", 50.0)], [], 2, id="half-in-what-it-computes-and-writes"),
        pytest.param([*ALIKE, device("cuda:3", 30.0)], [], 4, id="in-its-copies-too"),
        pytest.param([*ALIKE, device("cuda:3", 30.0, "T4")], [], 0, id="another-model"),
        pytest.param([device("cuda:0", 1.0)], [], 0, id="nothing-to-compare-with"),
        pytest.param([*ALIKE, {"device": "cuda:3", "model": "H100"}], [], 0, id="one-that-was-not-tested"),
        pytest.param([], [link(0, 1, 400), link(1, 0, 400), link(0, 2, 100)], 1, id="a-slow-link"),
        pytest.param([], [link(0, 1, 400), link(1, 0, 400), link(0, 2, 100, direct=False)], 0, id="another-way"),
    ],
)
def test_what_is_slow(devices: list[dict[str, Any]], links: list[dict[str, Any]], slow: int) -> None:
    assert len(find_slow(devices, links)) == slow


@pytest.mark.parametrize(("text", "seconds"), [("", 0.0), ("60", 60.0)])
def test_the_setting(text: str, seconds: float) -> None:
    assert seconds_of({"EBB_BURN_IN_SECONDS": text}) == seconds
    assert seconds_of({}) == 0.0


@pytest.mark.parametrize("text", ["0", "-5", "60s", "1.5"])
def test_a_setting_that_makes_no_sense(text: str) -> None:
    with pytest.raises(ValueError, match=f"EBB_BURN_IN_SECONDS is '{text}'; allowed: whole seconds, such as 60"):
        seconds_of({"EBB_BURN_IN_SECONDS": text})


def test_a_machine_is_known_again_until_it_starts_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    boot, devices = tmp_path / "boot_id", tmp_path / "dev"
    devices.mkdir()
    monkeypatch.setattr(burn_in, "_BOOT_ID", boot)
    monkeypatch.setattr(hardware_check, "DEVICES", devices)

    def known(boot_id: str, gpus: str, **environment: str) -> str:
        boot.write_text(boot_id + "\n")
        for file in devices.iterdir():
            file.unlink()
        for number in gpus:
            (devices / f"nvidia{number}").touch()
        return machine_id(environment)

    first = known("a", "01", EBB_NODE_NAME="n1")
    assert first.startswith("n1-")
    assert known("a", "01", EBB_NODE_NAME="n1") == first
    others = {
        known("b", "01", EBB_NODE_NAME="n1"),
        known("a", "23", EBB_NODE_NAME="n1"),  # another pod there has other GPUs
        known("a", "01", EBB_NODE_NAME="n1", CUDA_VISIBLE_DEVICES="1"),
        known("a", "01", EBB_NODE_NAME="n2"),
        known("a", "01"),
    }
    assert first not in others
    assert len(others) == 5


def test_a_machine_that_has_been_through_is_not_tested_again(tmp_path: Path) -> None:
    environment = {"EBB_BURN_IN_SECONDS": "60", "EBB_OUTPUT_DIR": str(tmp_path), "EBB_NODE_NAME": "n1"}
    said: list[str] = []
    BurnIn.of(environment, say=said.append).keep()
    assert len(list((tmp_path / "burn-in").iterdir())) == 1
    again = BurnIn.of(environment, say=said.append)
    assert said[-1] == "this machine has been through the job's burn-in before"
    assert (again.run(), again.try_network("name.invalid")) == ("", "")
    again.keep()
    assert said[-1] == "this machine has been through the job's burn-in before"
    BurnIn.of({**environment, "EBB_NODE_NAME": "n2"}, say=said.append).keep()
    BurnIn.of({**environment, "EBB_NODE_NAME": "n3", "EBB_BURN_IN_SECONDS": ""}, say=said.append).keep()
    assert len(list((tmp_path / "burn-in").iterdir())) == 2


def test_figures_that_cannot_be_kept_cost_only_a_second_test(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    said: list[str] = []
    a_burn_in([], said, folder=tmp_path / "file", machine="n1").keep()
    assert said[-1].endswith("a restart tests this machine again")


def test_the_way_to_itself_carries_what_was_sent() -> None:
    said: list[str] = []
    test = a_burn_in([], said)
    assert test.try_network("127.0.0.1") == ""
    assert test.figures["network"]["gb_per_second"] > 0
    assert said[0].startswith("burn-in: network to its own address 127.0.0.1: ")


def test_a_network_that_changes_what_was_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    def send(self: socket.socket, data: bytes) -> None:
        right(self, data[:1000] + bytes([data[1000] ^ 1]) + data[1001:])

    right = socket.socket.sendall
    monkeypatch.setattr(socket.socket, "sendall", send)
    fault = a_burn_in([], []).try_network("127.0.0.1")
    assert fault == "256 of 256 MiB that this machine sent to itself at '127.0.0.1' are not what was sent"


def test_an_address_of_nobody() -> None:
    fault = a_burn_in([], []).try_network("name.invalid")
    assert fault.startswith("this machine does not get through to itself at 'name.invalid': ")


def launch(command: list[str] | None, *arguments: str, **environment: str) -> "subprocess.Popen[str]":
    """A launcher whose burn-in this command stands for; None: the real one."""
    return subprocess.Popen(
        [sys.executable, str(SCRIPT), json.dumps(command), *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "EBB_BURN_IN_SECONDS": "1", **environment},
    )


@pytest.mark.e2e
def test_a_launcher_tests_its_machine_once(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("print('works')\n")
    said = []
    for _ in range(2):
        launcher = launch(None, "--standalone", str(tmp_path / "script.py"), EBB_OUTPUT_DIR=str(tmp_path / "out"))
        said.append(launcher.communicate(timeout=300)[1])
        assert launcher.returncode == 0, said[-1]
    (kept,) = (tmp_path / "out" / "burn-in").iterdir()
    found = json.loads(kept.read_text())
    assert [each["model"] for each in found["devices"]] == ["CPU"]
    assert set(found["devices"][0]["products"]) == {"float64", "float32", "bfloat16"}
    assert "burn-in: cpu (CPU): 0.25 of 0.25 GiB hold " in said[0]
    assert "this machine has been through the job's burn-in before" in said[1]
    assert "burn-in: testing" not in said[1]


@pytest.mark.e2e
def test_a_launcher_whose_machine_is_broken_leaves_before_it_joins(tmp_path: Path) -> None:
    (tmp_path / "script.py").touch()
    never = ["--nnodes=1:2", "--rdzv_backend=etcd3", "--rdzv_endpoint=127.0.0.1:9", "--rdzv_id=never"]
    broken = child("if device == 'cuda:1': tell(error='its memory: 3 of 9 words do not hold its address'); sys.exit()")
    launcher = launch(broken, *never, str(tmp_path / "script.py"), EBB_OUTPUT_DIR=str(tmp_path / "out"))
    _, said = launcher.communicate(timeout=120)
    assert launcher.returncode == 79, said
    last = said.strip().splitlines()[-1]
    assert "GPU 1 (H100) of this machine failed a test: its memory: 3 of 9 words do not hold its address" in last
    assert "This machine does not join the job" in last
    assert not (tmp_path / "out" / "burn-in").exists()


@pytest.mark.e2e
def test_a_notice_ends_a_burn_in(tmp_path: Path) -> None:
    (tmp_path / "script.py").touch()
    pid = tmp_path / "pid"
    hangs = child(f"open({str(pid)!r} + device[-1], 'w').write(str(os.getpid())); time.sleep(600)")
    launcher = launch(hangs, "--standalone", str(tmp_path / "script.py"))
    pids = [Path(f"{pid}{number}") for number in (0, 1)]
    until("the tests", lambda: all(each.exists() and each.read_text() for each in pids))
    launcher.send_signal(signal.SIGTERM)
    _, said = launcher.communicate(timeout=120)
    assert launcher.returncode == 138, said
    assert "could not be tested" not in said
    until("the tests' end", lambda: not any(Path(f"/proc/{each.read_text()}").exists() for each in pids))


@pytest.mark.e2e
def test_the_command_by_hand(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "ebb.elastic.launch.burn_in", "--seconds", "0.5", "--device", "cpu,cpu"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert (len(found["devices"]), len(found["links"]), found["fault"]) == (2, 2, "")
    assert found["network"]["gb_per_second"] > 0
