"""The power goes at every operation of a save: what was not flushed is lost, torn or there, each for itself."""

import random
from pathlib import Path

import pytest

from ebb.elastic.checkpoint.state import dump
from tests.elastic.checkpoint.disks import Client, PowerLoss, Share
from tests.elastic.checkpoint.making import claimed, folder, found_step, save, state

OUTPUT = Path("/output")


def cut_off(fail_at: int) -> tuple[Share, int, int]:
    """Saves steps 20, 30, 40 after 10 until the power goes; what is on the disk, the last step that was saved, the last tried."""
    share = Share()
    save(OUTPUT, 10, disk=Client(share), keep=2)
    client = Client(share, fail_at=fail_at)
    done = tried = 10
    try:
        place, fence = claimed(OUTPUT, disk=client, keep=2)
        for tried in (20, 30, 40):
            place.save(dump(state(tried)), fence, step=tried)
            done = tried
    except PowerLoss:
        pass
    return share, done, tried


@pytest.mark.parametrize("seed", range(2))
def test_the_newest_is_always_whole_and_never_older_than_the_last_saved(seed: int) -> None:
    chance = random.Random(seed)
    for fail_at in range(1000):
        share, done, tried = cut_off(fail_at)
        disk = Client(share.after_power_loss(chance))
        step = found_step(folder(OUTPUT, disk=disk))
        assert step is not None, fail_at
        assert done <= step <= tried, fail_at
        assert found_step(save(OUTPUT, step + 1, disk=disk)) == step + 1, fail_at
        if done == 40:
            break
    assert fail_at > 60


def test_the_disk_of_this_test_does_lose_what_was_not_flushed() -> None:
    share = Share()
    client = Client(share)
    client.make_folder(OUTPUT)
    for number in range(20):
        client.write(client.create(OUTPUT / str(number)), memoryview(b"content"))
    after = share.after_power_loss(random.Random(0)).folder(OUTPUT).files
    assert 0 < len(after) < 20
    assert {bytes(file.content) for file in after.values()} != {b"content"}
