"""Network file systems: files of other machines show late, and not in the order in which they were written."""

from pathlib import Path

import pytest

from ebb.elastic.checkpoint import CheckpointFolder, FileFence, highest_generation
from ebb.elastic.checkpoint.files import look
from ebb.elastic.checkpoint.state import dump
from tests.elastic.checkpoint.disks import Client, Share
from tests.elastic.checkpoint.making import Clock, FakeRegister, claimed, folder, found_step, save, state
from tests.elastic.checkpoint.test_fence import fence

OUTPUT = Path("/output")
PLACE = OUTPUT / "checkpoints"
THIRTY = PLACE / "g00001-s00000030-r0.json"


@pytest.fixture
def share() -> Share:
    share = Share()
    save(OUTPUT, 10, disk=Client(share))
    return share


def remembering(share: Share, *, notices_changes: bool = True) -> Client:
    """A machine that has just looked at the folder."""
    client = Client(share, notices_changes=notices_changes)
    client.names(PLACE)
    client.names(OUTPUT / "generations")
    return client


def write_more(share: Share) -> None:
    """By another machine, of the same generation."""
    place = folder(OUTPUT, disk=Client(share))
    for step in (20, 30):
        place.save(dump(state(step)), FileFence(OUTPUT, 1, disk=Client(share)), step=step)


def test_the_disk_of_these_tests_remembers(share: Share) -> None:
    client = remembering(share)
    write_more(share)
    assert sorted(client.names(PLACE)) == ["g00001-s00000010-r0.json", "g00001-s00000010-r0.pt"]


def test_a_change_of_ones_own_makes_a_client_look_again(share: Share) -> None:
    client = remembering(share)
    write_more(share)
    assert "g00001-s00000030-r0.json" in look(client, PLACE)
    assert not [name for name in look(client, PLACE) if name.startswith(".")]


def test_a_late_folder_is_seen_as_it_is(share: Share) -> None:
    client = remembering(share)
    write_more(share)
    clock = Clock()
    assert found_step(folder(OUTPUT, disk=client, clock=clock)) == 30
    assert clock.now == 0


def test_a_late_claim_is_seen_by_a_stale_writer_and_by_a_new_generation(share: Share) -> None:
    stale, newcomer = remembering(share), remembering(share)
    assert FileFence.claim(OUTPUT, disk=Client(share)).generation == 2
    place = folder(OUTPUT, disk=stale)
    with pytest.raises(Exception, match="replaced by a newer one"):
        place.save(dump(state(99)), FileFence(OUTPUT, 1, disk=stale), step=99)
    assert highest_generation(OUTPUT, newcomer) == 2
    assert FileFence.claim(OUTPUT, disk=newcomer).generation == 3


def reader(client: Client, clock: Clock) -> CheckpointFolder:
    """Its file system shows everything after five seconds, whatever one does."""

    def pass_by() -> None:
        if clock.now >= 5:
            client.forget()

    clock.when_asleep = pass_by
    return folder(OUTPUT, disk=client, clock=clock)


def test_a_manifest_that_shows_before_its_data_is_waited_for(share: Share) -> None:
    client, clock = remembering(share, notices_changes=False), Clock()
    write_more(share)
    client.see(THIRTY)
    assert found_step(reader(client, clock)) == 30
    assert clock.now == 5


def test_data_that_shows_before_its_manifest_is_not_cleared_away(share: Share) -> None:
    client, clock = remembering(share, notices_changes=False), Clock()
    write_more(share)
    client.see(THIRTY.with_suffix(".pt"))
    client.see(THIRTY.with_name("g00001-s00000010-r0.json"))
    place = reader(client, clock)
    place.prepare(2)
    assert found_step(place) == 10
    client.forget()
    assert found_step(place) == 30


def test_what_etcd_names_is_waited_for(share: Share) -> None:
    client, clock = remembering(share, notices_changes=False), Clock()
    write_more(share)
    assert found_step(reader(client, clock), "g00001-s00000030-r0") == 30
    assert clock.now == 5


def test_without_etcds_word_a_late_file_system_gives_an_older_one_and_the_order_stays(share: Share) -> None:
    """Such a file system lies to a job without etcd; what is then written is newer all the same."""
    client, clock = remembering(share, notices_changes=False), Clock()
    write_more(share)
    place = reader(client, clock)
    assert found_step(place) == 10
    place.save(dump(state(11)), FileFence(OUTPUT, 2, disk=client), step=11)
    client.forget()
    assert found_step(place) == 11


def test_an_old_name_does_not_hide_a_newer_checkpoint(share: Share) -> None:
    write_more(share)
    assert found_step(folder(OUTPUT, disk=Client(share)), "g00001-s00000010-r0") == 30


def test_with_etcd_a_reader_with_an_old_view_resumes_from_the_newest(share: Share) -> None:
    register = FakeRegister()
    register.form(2)
    writer, client = Client(share), remembering(share)
    ours = fence(register, 2)
    folder(OUTPUT, disk=writer).save(dump(state(40)), ours, step=40)
    candidate = folder(OUTPUT, disk=writer).write(dump(state(50)), generation=2, step=50)
    ours.commit(candidate)  # killed here
    register.form(3)
    assert found_step(folder(OUTPUT, disk=client), fence(register, 3).newest()) == 50
    assert claimed(OUTPUT, disk=client)[1].generation == 3
