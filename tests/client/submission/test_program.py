"""The program of a command: where it is, whether its folder goes along, and what no worker would find."""

from collections.abc import Callable
from pathlib import Path

import pytest

from ebb.client.errors import BadRequest
from ebb.client.submission.program import WITH_VALUE, Program, find_program, with_code
from ebb.client.submission.request import Request, launcher_arguments

PROGRAMS = {
    "a script": ("train.py --lr 0.1", Program("train.py")),
    "python": ("python -u src/train.py other.py", Program("src/train.py")),
    "a module": ("-m mine.train -m x", Program("mine.train", module=True)),
    "torchrun": ("torchrun --standalone --nproc-per-node 2 --rdzv_id=a --max_restarts 3 train.py", Program("train.py")),
    "torchrun's module": ("torchrun --nnodes 1:4 --module mine", Program("mine", module=True)),
    "accelerate": ("accelerate launch train.py --lr 1", Program("train.py")),
    "accelerate's module": ("accelerate launch -m mine", Program("mine", module=True)),
    "a shell script": ("./run.sh a", Program("./run.sh", command=True)),
    "a shell script without a folder": ("run.sh", Program("./run.sh", command=True)),
    "a shell's script": ("bash run.sh a", Program("run.sh")),
    "only flags": ("--standalone -r 3", None),
}


@pytest.mark.parametrize(("line", "program"), PROGRAMS.values(), ids=PROGRAMS)
def test_the_program_of_a_command(line: str, program: Program | None) -> None:
    assert find_program(launcher_arguments(line.split())) == program


def test_all_of_torchruns_flags_with_a_value_are_known() -> None:
    run = pytest.importorskip("torch.distributed.run", reason="torch is not installed")
    actions = [action for action in run.get_args_parser()._actions if action.option_strings and action.nargs is None]
    flags = {flag.lstrip("-").replace("-", "_") for action in actions for flag in action.option_strings}
    assert flags <= WITH_VALUE


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in (
        "train.py",
        "src/deep.py",
        "mine/__init__.py",
        "mine/train.py",
        "spread/part.py",
        "trainer/own.py",
        "skipped.py",
    ):
        path = tmp_path / "here" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    (tmp_path / "here" / ".gitignore").write_text("skipped.py\n")
    (tmp_path / "here" / "run.sh").write_text("#!/bin/sh\n")
    (tmp_path / "here" / "run.sh").chmod(0o755)
    (tmp_path / "here" / "dull.sh").write_text("#!/bin/sh\n")
    (tmp_path / "beside.py").touch()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


def code_of(line: str, *folders: Path, code: str | None = None, image: str | None = None) -> str | None:
    request = Request(name="a", arguments=launcher_arguments(line.split()), code=code, image=image)
    return with_code(request, folders or [Path()]).code


GOES = (
    "train.py",
    "python -u src/deep.py",
    "-m mine.train",
    "-m train",
    "-m spread.part",
    "torchrun --nnodes 1 train.py",
    "./run.sh",
)


@pytest.mark.parametrize(
    "line",
    [
        *GOES,
        "run.sh --x",
        "bash run.sh --x",
        "sh src/deep.py",
        "accelerate launch train.py",
        "trainer/own.py",
        "python ./train.py",
    ],
)
@pytest.mark.usefixtures("here")
def test_the_folder_of_a_local_program_goes_along(line: str) -> None:
    assert code_of(line) == "."


OF_THE_IMAGE = ("-m trainer", "-m trainer.own", "-m torchvision.train", "/opt/mine/train.py", "trainer/examples/images/stock.py")


@pytest.mark.parametrize("line", OF_THE_IMAGE)
@pytest.mark.usefixtures("here")
def test_a_program_of_the_image_needs_no_code(line: str) -> None:
    assert code_of(line) is None


@pytest.mark.usefixtures("here")
def test_what_is_said_of_the_code_is_kept() -> None:
    assert code_of("nowhere.py", code="") == ""
    assert code_of("train.py", code="") == ""
    assert code_of("deep.py", code="src") == "src"
    assert code_of("train.py", code="nowhere") == "nowhere", "packing it says what is wrong"


def test_the_first_folder_that_has_it_goes(here: Path) -> None:
    assert code_of("deep.py", here / "src", Path()) == str(here / "src")
    assert code_of("train.py", here / "src", Path()) == "."


def test_a_home_folder_goes_only_where_it_is_named(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(here))
    with pytest.raises(BadRequest) as refused:
        code_of("train.py")
    assert str(refused.value) == (
        f"program 'train.py' is in {here}, and all of that would go with the job, keys and settings too: move the program to a "
        "folder of its own, or say that this is meant with --code ."
    )
    assert code_of("train.py", code=".") == "."
    assert code_of("src/deep.py", here / "src", Path(), code="") == ""


@pytest.mark.parametrize("line", ["bash", "sh -c true"])
def test_a_shell_needs_a_script(line: str) -> None:
    with pytest.raises(BadRequest, match=r"program '(ba)?sh' has no script: name one, as in (ba)?sh run.sh"):
        launcher_arguments(line.split())


@pytest.mark.usefixtures("here")
def test_a_shells_script_that_is_nowhere_is_refused() -> None:
    with pytest.raises(BadRequest, match=r"program 'gone\.sh' is not in"):
        code_of("bash gone.sh")


REFUSED: dict[str, tuple[Callable[[], str | None], str]] = {
    "nowhere": (
        lambda: code_of("tarin.py"),
        "program 'tarin.py' is not in {here}: name its folder with --code DIR, or say --no-code if the image has it.",
    ),
    "in another image": (
        lambda: code_of("trainer/examples/images/stock.py", image="mine:1"),
        "program 'trainer/examples/images/stock.py' is not in {here}: name its folder with --code DIR, or say --no-code if the "
        "image has it.",
    ),
    "in neither folder": (
        lambda: code_of("tarin.py", Path("src"), Path()),
        "program 'tarin.py' is not in {here}/src or in {here}: name its folder with --code DIR, or say --no-code if the "
        "image has it.",
    ),
    "not in the code": (
        lambda: code_of("train.py", code="src"),
        "program 'train.py' is not in {here}/src: name it as it is there, or another folder with --code DIR, or say --no-code if "
        "the image has it.",
    ),
    "a folder": (
        lambda: code_of("src"),
        "program 'src' is not in {here}: name its folder with --code DIR, or say --no-code if the image has it.",
    ),
    "outside": (
        lambda: code_of("../beside.py"),
        "program '../beside.py' leads out of {here}, the folder that would go with the job: name a folder that holds it with "
        "--code DIR, and the program from there.",
    ),
    "in by a way that leads out": (
        lambda: code_of("../here/train.py"),
        "program '../here/train.py' leads out of {here}, the folder that would go with the job: name a folder that holds it with "
        "--code DIR, and the program from there.",
    ),
    "ignored": (
        lambda: code_of("skipped.py"),
        "program 'skipped.py' would stay behind: .gitignore leaves it out of what goes with the job from {here}. Take it out of "
        ".gitignore.",
    ),
    "not executable": (
        lambda: code_of("./dull.sh"),
        "program './dull.sh' may not be run: `chmod +x ./dull.sh` allows it.",
    ),
    "a module that its package lacks": (
        lambda: code_of("-m mine.tarin"),
        "program '-m mine.tarin' is not in {here}/mine: look at how it is spelt.",
    ),
    "a path of this machine": (
        lambda: code_of(str(Path("train.py").absolute())),
        "program '{here}/train.py' is a path on this machine, and workers have its folder elsewhere: name it as train.py, or say "
        "--no-code if the workers have that very path.",
    ),
    "accelerate's flags": (
        lambda: code_of("accelerate launch --multi_gpu train.py"),
        "program: accelerate's '--multi_gpu' has no meaning here, where Ebb starts the processes: leave it out, and say it in "
        "the script or by a variable, as in --env ACCELERATE_MIXED_PRECISION=bf16.",
    ),
}


@pytest.mark.parametrize(("ask", "sentence"), REFUSED.values(), ids=REFUSED)
def test_what_no_worker_would_find_is_refused(ask: Callable[[], str | None], sentence: str, here: Path) -> None:
    with pytest.raises(BadRequest) as refused:
        ask()
    assert str(refused.value) == sentence.format(here=here)
