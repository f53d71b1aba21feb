"""A job that reads tars from a store over HTTP, whose machines are lost and join: each sample once, each tar once per machine."""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from ebb.elastic.contract import EXIT_FINISHED
from testing import exactness as ledger
from tests.elastic.data.streams import written
from tests.elastic.machines import Job, kill_with_children

pytestmark = pytest.mark.e2e

SIZES = (11, 17, 5, 23, 8, 14, 19, 3)
# Each machine has a cache of its own: its launcher's number names it
PROGRAM = """
import os, pathlib, sys, time, torch
from ebb import elastic
address, folder = sys.argv[1], pathlib.Path(sys.argv[2])
with elastic.start(global_batch=5, epochs=8, ledger=True, log_every=1, min_step_seconds=0.05, checkpoint_seconds=1e6,
                   checkpoint_min_seconds=1e6) as run:
    with run.rank_zero_first():
        data = elastic.webdataset(address, transform=lambda sample: torch.tensor([float(sample["cls"])]) / 100,
                                  cache=folder / f"cache-{os.getppid()}", index=folder / "index.json")
    model = run.distribute(torch.nn.Linear(1, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    run.register_state(model=model, optimizer=optimizer)
    for step in run.steps(run.loader(data, workers=1, sections=4)):
        if run.world_size == 1:
            time.sleep(0.5)  # the job must not be over before the next machine has come
        for batch in step:
            step.backward(model(batch).square().mean())
        optimizer.step()
        optimizer.zero_grad()
"""


@contextmanager
def served(folder: Path) -> Iterator[tuple[str, Counter[str]]]:
    """The address of the folder, and how often each of its files was fetched."""
    fetched: Counter[str] = Counter()

    class Handler(SimpleHTTPRequestHandler):
        def __init__(self, *arguments: object) -> None:
            super().__init__(*arguments, directory=str(folder))  # type: ignore[arg-type]

        def do_GET(self) -> None:
            fetched[self.path] += 1
            super().do_GET()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", fetched
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_tars_in_a_store_through_a_loss_and_a_join(etcd: str, tmp_path: Path) -> None:
    shards, here, script = tmp_path / "shards", tmp_path / "here", tmp_path / "train.py"
    shards.mkdir()
    here.mkdir()
    script.write_text(PROGRAM)
    pattern = Path(written.tars(shards, SIZES)).name
    with served(shards) as (address, fetched):
        job = Job(etcd, tmp_path / "output", [str(script), f"{address}/{pattern}", str(here)], name="streams")
        try:
            first, second = job.start(planned=2), job.start(planned=2)
            job.together(2, 8)
            kill_with_children(second)
            job.together(1, 4)
            third = job.start(planned=2)
            job.together(2, 8)
            assert [machine.wait(120) for machine in (first, third)] == [EXIT_FINISHED] * 2
        finally:
            job.stop_all()
            print(job.logs())
    verdict = ledger.check(job.output)
    print(verdict, fetched)
    assert verdict.exact
    assert verdict.samples == 8 * sum(SIZES)
    assert len(fetched) == len(SIZES)
    assert max(fetched.values()) <= 3, "a machine has fetched a tar twice"
