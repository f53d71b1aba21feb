"""The rules, one by one: who forms a generation and when, what a running one answers to, and what is compared."""

from dataclasses import replace
from typing import Any

import pytest

from ebb.elastic.rendezvous.membership import (
    Closed,
    Form,
    Rules,
    Verdict,
    Wait,
    answers_of,
    assess,
    decide,
    formation,
    readiness,
    to_ask,
    whole_without,
)
from ebb.elastic.rendezvous.state import MemberInfo, MemberRecord, Record, View
from ebb.elastic.rendezvous.wire import Compare, Delete, Item, Put

PREFIX = "/ebb/job/"
RULES = Rules(min_size=1, max_size=4)
WORDS = MemberInfo(address="", store="", planned=4)


def entry(name: str, number: int, **words: Any) -> Item:
    """A machine whose key was made at that revision."""
    value = replace(WORDS, address=f"{name}.ip", store=f"{name}.ip:1", **words).json()
    return Item(key=f"{PREFIX}members/{name}", value=value, create_revision=number, mod_revision=number)


def generation(number: int, members: str, revision: int = 50) -> Item:
    places = tuple(MemberRecord(id=name, address=f"{name}.ip", processes=None) for name in members)
    value = Record(number=number, members=places, store=f"{members[0]}.ip:1").json()
    return Item(key=f"{PREFIX}generation", value=value, mod_revision=revision, lease=7)


def view(*items: Item, now: float = 100.0, before: View | None = None) -> View:
    return View.of(PREFIX, items, max([0, *(item.mod_revision for item in items)]), now=now, before=before)


def members_of(found: Wait | Form | Closed) -> tuple[int, str]:
    assert isinstance(found, Form), found
    return found.record.number, "".join(found.record.ids)


@pytest.mark.parametrize(
    ("items", "me", "now", "expected"),
    [
        pytest.param([entry("a", 1, planned=1)], "a", 100, (1, "a"), id="all-that-are-planned"),
        pytest.param([entry("a", 1), entry("b", 2), entry("c", 3), entry("d", 4)], "a", 100, (1, "abcd"), id="the-maximum"),
        pytest.param([entry("a", 1, planned=1), entry("b", 2, planned=2)], "a", 100, (1, "ab"), id="the-newest-knows-the-plan"),
        pytest.param([entry("a", 1, planned=9), entry("b", 2, planned=0)], "a", 105, (1, "ab"), id="not-told-after-a-last-call"),
        pytest.param([entry("a", 1), entry("b", 2)], "a", 104.9, 105.0, id="a-last-call"),
        pytest.param([entry("a", 1, planned=2), entry("b", 2, planned=2)], "b", 100, 100.5, id="the-second-tries-later"),
        pytest.param([entry("a", 1, planned=2), entry("b", 2, planned=2)], "b", 100.5, (1, "ab"), id="and-then-does"),
        pytest.param([entry(name, number) for number, name in enumerate("abcdef")], "a", 100, (1, "abcd"), id="never-more"),
        pytest.param([entry(name, number) for number, name in enumerate("abcdef")], "e", 999, None, id="who-does-not-fit-waits"),
        pytest.param([entry("a", 1, planned=1, floor=41)], "a", 100, (42, "a"), id="files-know-of-more"),
        pytest.param([generation(7, "xy"), entry("a", 1, planned=1, floor=5)], "a", 100, (8, "a"), id="all-of-the-last-are-gone"),
        pytest.param([generation(7, "a"), entry("a", 1), entry("b", 2)], "b", 999, None, id="a-whole-generation-trains"),
        pytest.param([generation(7, "ab"), entry("a", 1, after=7), entry("b", 2)], "a", 100, 220.0, id="one-has-not-stopped"),
        pytest.param([generation(7, "ab"), entry("a", 1, after=7)], "a", 100, (8, "a"), id="the-other-is-gone"),
        pytest.param(
            [generation(7, "ab"), entry("a", 1, after=7), entry("c", 3)], "a", 100, (8, "ac"), id="a-newcomer-comes-in-at-once"
        ),
        pytest.param(
            [generation(7, "ab"), entry("a", 1, after=7, members_only=True), entry("c", 3)], "a", 100, (8, "a"),
            id="or-waits-where-a-member-says-so",
        ),
        pytest.param(
            [generation(7, "ab"), entry("a", 1, after=7, members_only=True), entry("c", 3)], "c", 999, None, id="however-long",
        ),
        pytest.param(
            [generation(7, "bc"), entry("a", 1), entry("b", 2, after=7), entry("c", 3, after=7)], "b", 100, (8, "bca"),
            id="members-before-newcomers-without-a-last-call",
        ),
        pytest.param(
            [generation(7, "bcde"), entry("a", 1), *(entry(name, 2, after=7) for name in "bcde")], "b", 100, (8, "bcde"),
            id="members-before-newcomers-when-full",
        ),
        pytest.param([generation(7, "b"), entry("a", 1, after=5), entry("b", 2, after=7)], "a", 999, None, id="left-behind"),
        pytest.param(
            [entry("a", 1), Item(key=f"{PREFIX}closed", value=b"done", mod_revision=2)], "a", 100, Closed("done"), id="closed"
        ),
    ],
)  # fmt: skip
def test_who_forms_what(items: list[Item], me: str, now: float, expected: tuple[int, str] | float | Closed | None) -> None:
    found = decide(view(*items), me, now, RULES)
    if isinstance(expected, tuple):
        assert members_of(found) == expected
    elif isinstance(expected, Closed):
        assert found == expected
    else:
        assert isinstance(found, Wait)
        assert found.until == expected


def test_fewer_than_the_minimum_wait_for_others() -> None:
    assert decide(view(entry("a", 1, planned=1)), "a", 999, replace(RULES, min_size=2)) == Wait(until=None)


def test_a_straggler_is_waited_for_and_then_left_behind() -> None:
    whole = view(generation(7, "ab"), entry("a", 1), entry("b", 2), now=50)
    broken = view(generation(7, "ab"), entry("a", 3, after=7), entry("b", 2), now=100, before=whole)
    later = view(generation(7, "ab"), entry("a", 3, after=7), entry("b", 2), entry("c", 9), now=110, before=broken)
    found = decide(later, "a", 219.9, RULES)
    assert isinstance(found, Wait)
    assert [each.id for each in found.holdouts] == ["b"]
    founded = decide(later, "a", 220, RULES)
    assert members_of(founded) == (8, "ac")
    assert isinstance(founded, Form)
    assert Delete(f"{PREFIX}members/b") in formation(later, founded.record, 7).operations


def test_nothing_is_formed_on_what_has_changed() -> None:
    seen = view(generation(7, "a", revision=50), entry("a", 51, after=7), entry("b", 40))
    founded = decide(seen, "a", 100, RULES)
    assert isinstance(founded, Form)
    assert formation(seen, founded.record, 7).compares == [
        Compare(f"{PREFIX}generation", "mod_revision", 50),
        Compare(f"{PREFIX}closed", "version", 0),
        Compare(f"{PREFIX}members/a", "mod_revision", 51),
        Compare(f"{PREFIX}members/b", "mod_revision", 40),
    ]


def test_a_member_says_that_it_is_ready_only_for_what_follows_its_own_generation() -> None:
    seen = view(generation(7, "a", revision=50), entry("a", 40))
    said = readiness(seen, "a", MemberInfo(address="a.ip", store="a.ip:2"), 9)
    assert said.compares == [
        Compare(f"{PREFIX}generation", "mod_revision", 50),
        Compare(f"{PREFIX}members/a", "mod_revision", 40),
    ]
    assert b'"after": 7' in said.operations[0].value  # type: ignore[union-attr]


def lost(name: str, *unreached: str, asked: int = 7, **words: Any) -> Item:
    """A member of generation 7 whose workers have lost a peer, and which does not reach these others."""
    return entry(name, 60, after=7, failed=True, asked=asked, pulse=name, unreached=unreached, **words)


@pytest.mark.parametrize(
    ("items", "now", "expected"),
    [
        pytest.param([lost("a"), lost("b"), lost("c")], 100, (8, "abc"), id="all-reach-each-other"),
        pytest.param([lost("a"), lost("b", asked=6), lost("c")], 100, 106.0, id="one-has-not-asked-yet"),
        pytest.param([lost("a"), lost("b", asked=6), lost("c")], 106, (8, "abc"), id="and-is-not-waited-for-longer"),
        pytest.param([lost("a"), lost("b", asked=6)], 100, (8, "ab"), id="one-is-gone-that-explains-it"),
        pytest.param([lost("a"), lost("b", asked=6, by_itself=True), lost("c")], 100, (8, "abc"), id="one-failed-by-itself"),
        pytest.param([lost("a", "c"), lost("b"), lost("c")], 100, (8, "ab"), id="one-way-is-enough"),
        pytest.param([lost("a"), lost("b"), lost("c", "a")], 100, (8, "ab"), id="the-other-way-too"),
        pytest.param([lost("a"), lost("b", "c"), lost("c", "a", "b")], 100, (8, "ab"), id="the-most-go-on"),
        pytest.param([lost("b"), lost("c"), lost("a", "b", "c")], 100, None, id="and-not-the-first"),
        pytest.param([lost("a", "x"), lost("b"), lost("c"), entry("x", 9, pulse="x")], 100, (8, "abc"), id="nor-a-newcomer"),
        pytest.param([lost("a"), lost("b"), lost("c"), entry("x", 9, pulse="x", unreached=("b",))], 100, (8, "abc"),
                     id="that-does-not-reach-one"),
        pytest.param([lost("a"), lost("b"), lost("c"), entry("x", 9, pulse="x")], 100, (8, "abcx"), id="but-others"),
    ],
)  # fmt: skip
def test_machines_that_do_not_reach_each_other_are_not_together(
    items: list[Item], now: float, expected: tuple[int, str] | float | None
) -> None:
    whole = view(generation(7, "abc"), *(entry(name, 1) for name in "abc"), now=50)
    found = decide(view(generation(7, "abc"), *items, before=whole), "a", now, RULES)
    assert (members_of(found) if isinstance(found, Form) else found.until) == expected  # type: ignore[union-attr]


ALL = [generation(7, "ab"), entry("a", 1, pulse="a"), entry("b", 2, pulse="b")]


@pytest.mark.parametrize(
    ("items", "me", "unreached", "expected"),
    [
        pytest.param(ALL, "a", "", "", id="nobody-while-they-train"),
        pytest.param(ALL, "a", "b", "b", id="one-that-has-not-answered"),
        pytest.param(ALL, "a", "x", "", id="but-not-one-that-is-gone"),
        pytest.param([*ALL, entry("c", 3, pulse="c")], "c", "", "ab", id="a-newcomer-asks-the-members"),
        pytest.param([*ALL, entry("c", 3, pulse="c")], "a", "", "", id="they-do-not-ask-it"),
        pytest.param([generation(7, "ab"), lost("a"), entry("b", 2, pulse="b")], "b", "", "a", id="when-one-has-lost-a-peer"),
        pytest.param([generation(7, "abc"), lost("a"), entry("b", 2, pulse="b")], "b", "", "", id="not-when-one-is-gone"),
        pytest.param([*ALL, Item(key=f"{PREFIX}closed", value=b"done")], "a", "b", "", id="the-job-is-over"),
    ],
)
def test_who_asks_whom(items: list[Item], me: str, unreached: str, expected: str) -> None:
    assert to_ask(view(*items), me, set(unreached)) == set(expected)


def test_what_a_machine_has_found_out_changes_nothing_else_in_its_key() -> None:
    seen = view(*ALL)
    assert answers_of(seen, "a", unreached=(), asked=0) is None, "it says so already"
    assert answers_of(seen, "x", unreached=("b",), asked=7) is None, "it is not on the list"
    told = answers_of(seen, "a", unreached=("b",), asked=7)
    assert told is not None
    assert told.compares == [Compare(f"{PREFIX}members/a", "mod_revision", 1)]
    (put,) = told.operations
    assert isinstance(put, Put)
    after = view(ALL[0], Item(key=put.key, value=put.value, create_revision=1, mod_revision=9), ALL[2]).by_id["a"]
    assert after.words == replace(seen.by_id["a"].words, unreached=("b",), asked=7)


GONE = Verdict(1, lost=True, cause=True)
FULL = [entry("a", 1), entry("b", 2), entry("c", 3), entry("d", 4)]


@pytest.mark.parametrize(
    ("items", "now", "expected"),
    [
        pytest.param([generation(7, "ab"), *FULL[:2]], 100, Verdict(), id="whole"),
        pytest.param([generation(7, "ab"), *FULL], 100, Verdict(2), id="all-that-are-planned-have-come"),
        pytest.param([generation(7, "ab"), *FULL[:3]], 100, Verdict(), id="one-of-them-is-waited-for"),
        pytest.param([generation(7, "ab"), *FULL[:3]], 102, Verdict(1), id="for-two-seconds"),
        pytest.param([generation(7, "abcd"), *FULL, entry("e", 5)], 999, Verdict(), id="who-does-not-fit-disturbs-nobody"),
        pytest.param([*ALL, entry("c", 3, pulse="c", unreached=("b",))], 999, Verdict(), id="nor-who-does-not-reach-one"),
        pytest.param([generation(7, "ab"), entry("a", 1)], 100, GONE, id="a-member-is-gone"),
        pytest.param([generation(7, "ab"), entry("b", 2)], 100, GONE, id="this-one-was-taken-for-dead"),
        pytest.param([generation(7, "ab"), entry("a", 1), Item(key=f"{PREFIX}left/b")], 100, Verdict(1), id="a-member-has-left"),
        pytest.param([generation(8, "b"), entry("a", 1), entry("b", 2)], 100, GONE, id="left-behind"),
        pytest.param([], 100, GONE, id="etcd-has-lost-its-data"),
        pytest.param([generation(7, "ab"), entry("a", 1), entry("b", 60, after=7)], 100, Verdict(1), id="one-meets-again"),
        pytest.param(
            [generation(7, "ab"), entry("a", 1), entry("b", 60, after=7, failed=True)], 100, Verdict(1, lost=True),
            id="one-whose-workers-failed",
        ),
        pytest.param(
            [generation(7, "ab"), entry("a", 1), entry("b", 60, after=7, failed=True, by_itself=True)], 100,
            GONE, id="one-whose-workers-failed-by-themselves",
        ),
        pytest.param(
            [generation(7, "ab"), Item(key=f"{PREFIX}closed", value=b"done", mod_revision=2)], 100, Verdict(), id="job-is-over"
        ),
    ],
)  # fmt: skip
def test_what_a_running_generation_answers_to(items: list[Item], now: float, expected: Verdict) -> None:
    assert assess(view(*items), "a", 7, now, RULES) == expected


def test_what_others_have_written_there_is_passed_over() -> None:
    strange = [
        Item(key=f"{PREFIX}members/x", value=b"?"),
        Item(key=f"{PREFIX}members/y", value=b'{"a": 1}'),
        Item(key=f"{PREFIX}z"),
    ]
    broken = Item(key=f"{PREFIX}generation", value=b'{"number": 3}', mod_revision=9)
    seen = view(*strange, broken, entry("a", 1))
    assert [each.id for each in seen.entries] == ["a"]
    assert (seen.record, seen.record_revision) == (None, 9)


TWO = [generation(7, "ab"), entry("a", 1), entry("b", 2)]


@pytest.mark.parametrize(
    ("items", "after", "rules", "expected"),
    [
        pytest.param([], 0, RULES, "none", id="there-is-no-generation"),
        pytest.param(TWO, 0, RULES, "ab", id="a-newcomer"),
        pytest.param([*TWO, entry("c", 3)], 0, RULES, "ab", id="another-one-is-coming-too"),
        pytest.param(TWO, 6, RULES, "ab", id="its-own-is-over"),
        pytest.param(TWO, 7, RULES, "wait", id="its-own-is-not-over-yet"),
        pytest.param([generation(7, "abc"), entry("a", 1), entry("b", 2)], 7, RULES, "wait", id="the-others-have-not-formed-one"),
        pytest.param(TWO[:2], 0, Rules(min_size=2, max_size=4), "none", id="too-few-without-it"),
        pytest.param(TWO, 0, Rules(min_size=1, max_size=2), "none", id="no-room"),
        pytest.param([*TWO, Item(key=f"{PREFIX}closed", value=b"done")], 0, RULES, "none", id="the-job-is-over"),
    ],
)
def test_who_gets_ready_beside_a_generation(items: list[Item], after: int, rules: Rules, expected: str) -> None:
    found = whole_without(view(*items), after, rules)
    assert ("wait" if isinstance(found, Wait) else "".join(found.ids) if found else "none") == expected
