"""Sizes of a network check, and its times as bandwidths: nccl-tests' own figures."""

import pytest

from ebb.elastic.netcheck.bandwidth import ALL_GATHER, ALL_REDUCE, SEND_RECEIVE, bandwidths, reason_to_skip, sizes_of, times_of

GIB = 2**30


@pytest.mark.parametrize(
    ("size", "microseconds", "algorithm", "bus"),
    [  # all_reduce_perf of nccl-tests on 16 GPUs of two p4d.24xlarge with 4 EFA: time, algbw and busbw as it printed them
        (1048576, 1599.2, 0.66, 1.23),
        (67108864, 4783.2, 14.03, 26.31),
        (1073741824, 47904, 22.41, 42.03),
    ],
)
def test_an_all_reduce_is_reckoned_as_nccl_tests_do(size: int, microseconds: float, algorithm: float, bus: float) -> None:
    found = bandwidths(ALL_REDUCE, size, seconds=microseconds / 1e6, ranks=16)
    assert found == pytest.approx((algorithm, bus), abs=0.0051)


def test_each_operation_has_its_own_factor() -> None:
    rates = {name: bandwidths(name, 4 * 10**9, seconds=1.0, ranks=4).bus for name in (ALL_REDUCE, ALL_GATHER, SEND_RECEIVE)}
    assert rates == {ALL_REDUCE: 6.0, ALL_GATHER: 3.0, SEND_RECEIVE: 4.0}


def test_sizes_are_those_of_nccl_tests_for_its_average_and_of_the_table_for_the_others() -> None:
    assert (len(sizes_of(ALL_REDUCE)), sizes_of(ALL_REDUCE)[0], sizes_of(ALL_REDUCE)[-1]) == (28, 8, GIB)
    assert sizes_of(SEND_RECEIVE) == [8, *(2**power for power in range(20, 31))] == sizes_of(ALL_GATHER)
    assert sizes_of(ALL_GATHER, largest=3 * 2**20) == [8, 2**20, 2**21]


def test_slow_operations_are_timed_once_and_fast_ones_often() -> None:
    assert (times_of(GIB, seconds=8.0), times_of(GIB, seconds=0.1), times_of(8, seconds=1e-5)) == (1, 10, 50)
    assert times_of(8, seconds=0.01) == 10  # a small size has a tenth of the time


def test_a_size_is_left_out_for_memory_or_time_but_not_for_a_slow_start() -> None:
    assert reason_to_skip(GIB, before=None, free_bytes=3 * GIB) == ""
    assert reason_to_skip(GIB, before=None, free_bytes=3 * GIB - 1) == "it needs 3.0 GiB of memory, and a rank has 3.0 GiB free"
    assert reason_to_skip(GIB, before=(GIB // 2, 10.1), free_bytes=3 * GIB) == "it would take 20 s"
    assert reason_to_skip(GIB, before=(GIB // 2, 9.9), free_bytes=3 * GIB) == ""
    assert reason_to_skip(2**20, before=(8, 0.5), free_bytes=GIB) == ""  # half a second of latency is no bandwidth
