"""Who may commit. The fake register keeps etcd's promise: a transaction happens as a whole or not at all."""

import json
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from ebb.elastic.checkpoint import EtcdFence, FenceUnreachable, FileFence, Stale, highest_generation
from ebb.elastic.checkpoint.state import dump
from tests.elastic.checkpoint.making import MEMBERSHIP, FakeRegister, both, files, folder, found_step, manifest, state

KEY = "/ebb/checkpoints/0123"


def fence(register: FakeRegister, generation: int) -> EtcdFence:
    return EtcdFence(register, generation=generation, membership=MEMBERSHIP, folder="0123")


@pytest.fixture
def register() -> FakeRegister:
    register = FakeRegister()
    register.form(3)
    return register


def test_a_commit_names_the_newest(register: FakeRegister) -> None:
    ours = fence(register, 3)
    assert ours.newest() is None
    ours.commit(manifest(3, 10))
    assert ours.newest() == "g00003-s00000010-r0"
    assert json.loads(register.keys[KEY][0]) == {"name": "g00003-s00000010-r0", "generation": 3, "step": 10}


def test_a_stale_generation_with_a_higher_step_cannot_commit(register: FakeRegister) -> None:
    old = fence(register, 3)
    old.commit(manifest(3, 10))
    register.form(4)
    new = fence(register, 4)
    with pytest.raises(Stale, match="generation 3 was replaced"):
        old.commit(manifest(3, 900))
    new.commit(manifest(4, 11))
    with pytest.raises(Stale, match=r"replaced by a newer one \(4\)"):
        old.commit(manifest(3, 901))
    assert new.newest() == "g00004-s00000011-r0"


def test_one_that_is_replaced_in_the_middle_of_its_commit_cannot(register: FakeRegister) -> None:
    old = fence(register, 3)
    register.before_put = lambda: register.form(4)
    with pytest.raises(Stale, match="etcd's membership is of generation 4"):
        old.commit(manifest(3, 10))
    assert KEY not in register.keys


def test_the_same_number_of_another_membership_is_not_ours(register: FakeRegister) -> None:
    """etcd lost its data, and machines that knew of nothing began anew with our number, at our revision."""
    old = fence(register, 3)
    old.newest()
    revision = register.keys[MEMBERSHIP][1]
    register.forget()
    register.form(3, members="others")
    register.keys[MEMBERSHIP] = (register.keys[MEMBERSHIP][0], revision)
    with pytest.raises(Stale):
        old.commit(manifest(3, 10))


def test_a_lower_step_of_the_same_generation_does_not_take_the_name_back(register: FakeRegister) -> None:
    fence(register, 3).commit(manifest(3, 20))
    fence(register, 3).commit(manifest(3, 19, writer=1))
    assert fence(register, 3).newest() == "g00003-s00000020-r0"


def test_two_survivors_commit_at_once_and_both_are_answered(register: FakeRegister) -> None:
    first, second = fence(register, 3), fence(register, 3)

    def other() -> None:
        register.before_put = lambda: None
        second.commit(manifest(3, 10, writer=1))

    register.before_put = other
    first.commit(manifest(3, 10))
    assert first.newest() == "g00003-s00000010-r0"


def test_an_answer_that_was_lost_is_a_commit_all_the_same(register: FakeRegister) -> None:
    ours = fence(register, 3)
    register.lose_answers = 1
    with pytest.raises(FenceUnreachable):
        ours.commit(manifest(3, 10))
    register.form(4)  # the new generation resumes from it
    ours.commit(manifest(3, 10))
    assert fence(register, 4).newest() == "g00003-s00000010-r0"


def lost(register: FakeRegister) -> None:
    register.forget()


def old_backup(register: FakeRegister) -> None:
    register.form(2)


def away(register: FakeRegister) -> None:
    register.away = True


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        pytest.param(away, "does not answer", id="away"),
        pytest.param(lost, "has lost its data, and the machines must meet again", id="lost-its-data"),
        pytest.param(old_backup, "knows only generation 2, this is 3", id="restored-from-a-backup"),
    ],
)
@pytest.mark.parametrize("known", [True, False], ids=["in-the-middle", "from-the-start"])
def test_etcd_in_trouble_decides_nothing(
    register: FakeRegister, harm: Callable[[FakeRegister], None], words: str, known: bool
) -> None:
    ours = fence(register, 3)
    if known:
        ours.newest()
    harm(register)
    with pytest.raises(FenceUnreachable, match=words):
        ours.commit(manifest(3, 10))
    assert KEY not in register.keys


@pytest.mark.parametrize("value", [b"", b"[]", b"{}", b'{"name": 7}', b'{"name": "../../etc/passwd"}', b"\xff"])
def test_a_value_that_is_not_ours_is_no_name(register: FakeRegister, value: bytes) -> None:
    register.put(KEY, value)
    ours = fence(register, 3)
    assert ours.newest() is None
    ours.commit(manifest(3, 10))
    assert ours.newest() == "g00003-s00000010-r0"


def test_after_etcd_lost_its_data_the_folder_says_what_is_newest(register: FakeRegister, tmp_path: Path) -> None:
    place = folder(tmp_path)
    place.prepare(3)
    place.save(dump(state(10)), fence(register, 3), step=10)
    candidate = place.write(dump(state(20)), generation=3, step=20)
    stale = fence(register, 3)
    stale.newest()
    register.forget()
    assert highest_generation(tmp_path) == 3
    register.form(4)
    again = fence(register, 4)
    assert again.newest() is None
    assert found_step(place, again.newest()) == 10
    place.save(dump(state(11)), again, step=11)
    with pytest.raises(Stale):
        place.commit(candidate, stale)
    assert found_step(place, again.newest()) == 11
    assert files(tmp_path) == both("g00003-s00000010-r0", "g00004-s00000011-r0")


def test_a_commit_whose_answer_was_lost_is_not_removed_by_its_stale_writer(register: FakeRegister, tmp_path: Path) -> None:
    place, old = folder(tmp_path), fence(register, 3)
    place.prepare(3)
    candidate = place.write(dump(state(20)), generation=3, step=20)
    register.lose_answers = 1
    with pytest.raises(FenceUnreachable):
        place.commit(candidate, old)
    register.form(4)
    new = fence(register, 4)
    assert found_step(place, new.newest()) == 20
    place.save(dump(state(21)), new, step=21)
    with pytest.raises(Stale):
        place.commit(candidate, old)
    assert files(tmp_path) == both("g00003-s00000020-r0", "g00004-s00000021-r0")


def test_a_writer_killed_after_the_commit_has_committed(register: FakeRegister, tmp_path: Path) -> None:
    place = folder(tmp_path)
    place.prepare(3)
    place.save(dump(state(10)), fence(register, 3), step=10)
    fence(register, 3).commit(place.write(dump(state(20)), generation=3, step=20))
    register.form(4)
    assert found_step(place, fence(register, 4).newest()) == 20
    assert files(tmp_path) == both("g00003-s00000010-r0", "g00003-s00000020-r0")


def test_two_never_claim_the_same_generation(tmp_path: Path) -> None:
    claims: list[int] = []
    threads = [threading.Thread(target=lambda: claims.append(FileFence.claim(tmp_path).generation)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(claims) == list(range(1, 9))


def test_claims_do_not_pile_up_and_never_go_back(tmp_path: Path) -> None:
    assert [FileFence.claim(tmp_path).generation for _ in range(5)] == [1, 2, 3, 4, 5]
    assert [path.name for path in (tmp_path / "generations").iterdir()] == ["00005"]


def test_a_claim_is_higher_than_any_checkpoint(tmp_path: Path) -> None:
    """The job ran with etcd before, which counts by itself."""
    place = folder(tmp_path)
    place.prepare(7)
    place.write(dump(state(1)), generation=7, step=1)
    assert (highest_generation(tmp_path), FileFence.claim(tmp_path).generation) == (7, 8)


def test_a_generation_hears_that_it_is_replaced(register: FakeRegister, tmp_path: Path) -> None:
    """And takes nobody's word for it while etcd, or the folder, says nothing."""
    ours, ours_in_files = fence(register, 3), FileFence.claim(tmp_path)
    assert not ours.is_replaced()
    assert not ours_in_files.is_replaced()
    register.away = True
    assert not ours.is_replaced()
    register.away = False
    register.form(4)
    FileFence.claim(tmp_path)
    assert ours.is_replaced()
    assert ours_in_files.is_replaced()
    register.forget()
    assert not ours.is_replaced()
