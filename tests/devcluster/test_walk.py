"""The walk's driver in a real terminal, against a fake `ebb` that boots, loses and finishes by words in files; and its page."""

import asyncio
import os
import shlex
import shutil
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from typer.testing import CliRunner

from devcluster.walk import play
from devcluster.walk.play import Scene, Walk, cleaned, page
from devcluster.walk.terminal import COLUMNS, Terminal, WalkError, ended, opened
from ebb.cli.app import app
from tests.cli.test_look import RUNNING
from tests.cli.world import FakeKube, platform_map, session, worker_pod

EBB = """#!/bin/bash
# What a walk needs of ebb. State is files in $STATE.
cd "$STATE" || exit 9
echo "$*" >> calls
case "$*" in
  "gpus") echo "GPU  FREE"; echo "T4   4" ;;
  "list -o json") [ -f old ] && echo '{"jobs": [{"name": "scan-1"}, {"name": "other"}]}' || echo '{"jobs": []}' ;;
  "list") echo "NAME    STATE"; echo "digits  finished" ;;
  "delete"*) rm -f old ;;
  "submit --name mine"*) read -r -p "Start it? [Y/n]: " answer; echo "mine is submitted." ;;
  "wait mine") echo "mine is finished" >&2 ;;
  "logs mine --tail 4") echo "w0 | epoch 19, rank 0: loss 0.0421" ;;
  "status mine") echo "mine  finished" ;;
  "ui --no-open")
    trap 'echo "ebb: the page is closed; jobs continue."; exit 130' INT
    echo "http://127.0.0.1:4711/?token=very-secret-$(printf 'x%.0s' {1..80})"
    echo "Whoever has this address can read the page."
    while true; do sleep 0.1; done ;;
  "submit"*) echo "digits on local"; read -r -p "Start it? [Y/n]: " answer; touch submitted; echo "digits is submitted." ;;
  "status digits -o json") echo '{"workers": [{"state": "leaving", "machine": "m-1"}, {"state": "running", "machine": "m-2"}]}' ;;
  "status digits --watch")
    trap 'echo; echo "ebb: stopped watching; jobs continue."; exit 130' INT
    for step in 1 2 3 4 5 6 7 8 9 10; do
      printf '\\033[H\\033[2Jdigits  running\\n'
      if [ -f taken-m-2 ] && [ $step -lt 6 ]; then step=6; fi
      case $step in
        1) echo "  workers   0 of 2" ;;
        [6-7]) echo "  workers   1 of 2"; echo "worker 1 on m-2 was lost: the cloud takes its machine back" ;;
        *) echo "  workers   2 of 2"; echo "  progress  step $step, loss 0.$step"
           [ -f taken-m-2 ] && echo "worker 1 on m-2 was lost: the cloud takes its machine back" ;;
      esac
      if [ -f taken-m-2 ]; then [ $step -ge 8 ] && step=8; else step=$((step > 4 ? 4 : step)); fi
      for tick in 1 2 3 4; do [ -f taken-m-2 ] && [ $step -lt 6 ] && break; sleep 0.1; done
      while [ $step -ge 4 ] && [ ! -f taken-m-2 ]; do sleep 0.05; done
    done
    while true; do sleep 0.1; done ;;
  "status digits") echo "digits  finished" ;;
  "logs digits --tail 6") echo "w0 | step 3/9" ;;
  "wait digits") echo "digits is finished" >&2 ;;
  "sweep"*) read -r -p "Start them? [Y/n]: " answer; printf "scan-1 running\nscan-2 running\n"; sleep 0.5; echo "over" ;;
  "report"*) echo "<h1>$2</h1>" > "$PLACE/$2.html"; echo "$2.html" ;;
  *) echo "what? $*" >&2; exit 2 ;;
esac
"""
pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed: apt-get install tmux")


@pytest.fixture
async def terminal(tmp_path: Path) -> AsyncIterator[Terminal]:
    async with opened(tmp_path, path=os.environ["PATH"]) as found:
        yield found


async def test_a_command_is_typed_and_its_screen_is_its_own(terminal: Terminal) -> None:
    for word in ("one", "two"):
        await terminal.type(f"echo {word}")
        assert await terminal.finished() == f"$ echo {word}\n{word}\n$"


async def test_all_that_scrolled_away_is_seen_and_lines_are_of_80_columns(terminal: Terminal) -> None:
    await terminal.type("seq 200; printf 'x%.0s' {1..100}; echo")
    lines = (await terminal.finished()).splitlines()
    assert lines[1:201] == [str(number) for number in range(1, 201)]
    assert [len(line) for line in lines[201:203]] == [COLUMNS, 20]


async def test_a_command_over_two_lines(terminal: Terminal) -> None:
    await terminal.type("echo a \\\n  b")
    assert await terminal.finished() == "$ echo a \\\n>   b\na b\n$"


async def test_a_command_that_fails_is_told_with_its_screen(terminal: Terminal) -> None:
    await terminal.type("echo no; (exit 5)")
    with pytest.raises(WalkError, match=r"ended with 5. The screen:\n\$ echo no; \(exit 5\)\nno"):
        await terminal.finished()
    await terminal.type("true")
    await terminal.finished()  # the next one is judged by its own code


async def test_what_does_not_come_is_given_up_with_the_screen(terminal: Terminal) -> None:
    await terminal.type("echo here; cat")
    await terminal.until("the end of echo", lambda screen: screen.endswith("here"), limit_seconds=5)
    with pytest.raises(WalkError, match=r"the moon: not within 0 s. The screen:\n\$ echo here; cat\nhere"):
        await terminal.until("the moon", lambda screen: "moon" in screen, limit_seconds=0.2)
    await terminal.press("C-c")
    await terminal.finished(code=130)


async def test_nothing_of_it_is_left(tmp_path: Path) -> None:
    async with opened(tmp_path, path=os.environ["PATH"]) as terminal:
        await terminal.type("echo $PPID > pid")
        await terminal.finished()
    status = Path("/proc", (tmp_path / "pid").read_text().strip(), "status")
    for _ in range(100):  # a server that was told to end has its last moments
        if not status.exists() or "State:\tZ" in status.read_text():
            return
        await asyncio.sleep(0.02)
    raise AssertionError(status.read_text())


@pytest.mark.parametrize(
    ("screen", "code"),
    [("$", None), ("$ sleep 9", None), ("$ ls\n$", 0), ("$ ls\nno\n2$", 2), ("$ cat\n5$ is the price", None), ("", None)],
)
def test_when_a_command_has_ended(screen: str, code: int | None) -> None:
    assert ended(screen) == code


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A folder whose path leaves room on a terminal's line; pytest's own grow with the number of runs and workers."""
    with TemporaryDirectory(prefix="walk-") as name:
        yield Path(name)


async def test_the_whole_walk(short_path: Path) -> None:
    state, folder, programs = short_path / "state", short_path / "home", short_path / "bin"
    for place in (state, folder, programs):
        place.mkdir()
    (programs / "ebb").write_text(EBB.replace("$STATE", str(state)).replace("$PLACE", str(folder)))
    (programs / "ebb").chmod(0o755)
    (state / "old").touch()
    path, told = f"{programs}:{os.environ['PATH']}", list[str]()
    async with opened(folder, path=path) as terminal, opened(state, path=path) as cloud:
        walk = Walk(
            terminal=terminal, cloud=cloud, path=path, folder=folder, tell=told.append, hidden={str(state): "~/state"},
            reclaim="touch taken-{machine}; echo taking {machine} from $PWD",
        )  # fmt: skip
        scenes = await walk.perform()
    text = page(scenes, recorded="2026-11-22")
    assert told[0] == "removing what an earlier walk left: scan-1"
    assert "delete scan-1\n" in (state / "calls").read_text()
    assert [scene.title for scene in scenes] == [
        "Your own script",
        "A longer job",
        "A machine is taken away",
        "The live page",
        "Logs",
        "The end",
        "A sweep of four",
        "A report",
        "What there is now",
    ]
    assert "Start it? [Y/n]:" in text
    assert "DistributedDataParallel(net)" in scenes[0].screens[0]
    assert scenes[0].screens[-1].endswith("mine  finished")
    assert "loss 0." in scenes[1].screens[-1]
    taken, lost, back, left = scenes[2].screens
    assert taken.splitlines()[-1] == "taking m-2 from ~/state"  # a path of this machine is hidden
    assert "was lost" in lost
    assert "2 of 2" in back
    assert left.endswith("ebb: stopped watching; jobs continue.")
    assert "secret" not in text
    assert "xxx" not in text
    assert scenes[6].screens[0].count("running") >= 2
    assert scenes[7].screens == ("$ ebb report digits\ndigits.html", "$ ebb report scan\nscan.html")
    assert str(short_path) not in text


def test_the_page() -> None:
    scene = Scene(title="Look", text="Words.", screens=("$ ebb list\nNAME\n```",), pictures=(("a report, dark", "walk/d.png"),))
    text = page([scene], recorded="2026-11-22")
    assert text.startswith("# A walk through Ebb\n")
    assert "Recorded on 2026-11-22\nby `make walk`" in text
    assert text.endswith("## 1. Look\n\nWords.\n\n````text\n$ ebb list\nNAME\n```\n````\n\n![a report, dark](walk/d.png)\n")


def test_cleaned() -> None:
    assert cleaned("$ ls /a/b\n/a/b/c  \n\n$", {"/a": "~", "/a/b": "~/ebb"}) == "$ ls ~/ebb\n~/ebb/c"


async def test_a_picture_is_asked_for_of_the_browser(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a stand-in that takes a browser's arguments: the real one is no part of the tests' machine."""
    fake = tmp_path / "browser"
    fake.write_text(
        f"#!{sys.executable}\nimport sys\n"
        "said = dict(word.lstrip('-').partition('=')[::2] for word in sys.argv[1:-1])\n"
        "open(said['screenshot'], 'w').write(f\"{said['blink-settings']} {said['window-size']} {sys.argv[-1]}\")\n"
    )
    fake.chmod(0o755)
    monkeypatch.setenv("EBB_BROWSER", str(fake))
    assert play.find_browser() == str(fake)
    await play.picture(str(fake), tmp_path / "r.html", tmp_path / "r.png", scheme="dark", width=360, height=800)
    assert (tmp_path / "r.png").read_text() == f"preferredColorScheme=0 360,800 {(tmp_path / 'r.html').as_uri()}"


def typed(command: str, *more: str) -> str:
    """What `ebb` itself says to a command of the walk, on a fake platform."""
    kube = FakeKube(platform_map(), RUNNING, worker_pod(0), worker_pod(1))
    words = shlex.split(command.replace("\\\n", " "))[1:]
    split = words.index("--") if "--" in words else len(words)
    words[split:split] = more
    result = CliRunner().invoke(app, words, obj=session(kube), env={"COLUMNS": str(COLUMNS), "TZ": "UTC"})
    assert result.exit_code == 0, result.output
    return result.output


def test_what_the_walk_types_is_understood(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(play.readme_script())
    assert "name: mine" in typed(play.SUBMIT_MINE, "--dry-run")
    assert "name: digits" in typed(play.SUBMIT, "--dry-run")
    sweep = typed(play.SWEEP_OF_FOUR, "--dry-run")
    assert sweep.count("kind: ElasticJob") == 4
    assert "maxParallel: 2" in sweep


def test_what_the_walk_waits_for_is_what_is_shown() -> None:
    seen = typed(f"ebb status {play.JOB}")
    assert all(pattern.search(seen) for pattern in (play.LOSS, play.BOTH, play.LOST)), seen
    assert not play.ONE.search(seen)
    assert not play.LOST.search("WORKER  STATE\n0       running\nreclaims  none")
    assert play.QUESTION.search("Start it? [Y/n]:")
