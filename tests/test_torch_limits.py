"""Older torches: those beside which nothing runs, what the others cannot do, and which one an image has by its name."""

import pytest

from ebb.torch_limits import LIMITS, find_limits, find_problem, version_in


@pytest.mark.parametrize("version", ["2.1.0", "2.4.1+cu121", "2.6.0a0+ecf3bae40a.nv25.01", "2.13.0", "3.0", ""])
def test_a_torch_that_is_new_enough_will_do(version: str) -> None:
    assert find_problem(version) == ""


@pytest.mark.parametrize("version", ["1.13.1", "2.0.1+cpu"])
def test_a_torch_that_is_too_old_is_named_with_the_fix(version: str) -> None:
    assert find_problem(version) == (
        f"the image's torch is {version}, and Ebb's launcher needs torch 2.1 or newer: take an image with it, or leave out "
        "--image for the stack's trainer"
    )


def test_an_image_without_torch_is_told_so() -> None:
    assert find_problem(None).startswith("there is no torch for this Python, and Ebb's launcher needs torch 2.1 or newer")


@pytest.mark.parametrize(
    ("version", "count"), [("2.1.2", 3), ("2.4.1", 3), ("2.6.0", 2), ("2.8.0", 1), ("2.9.0", 0), ("2.13.0", 0), ("", 0)]
)
def test_what_an_older_torch_cannot_do_is_one_line(version: str, count: int) -> None:
    line = find_limits(version)
    assert "\n" not in line
    assert [text for _, text in LIMITS if text in line] == [text for _, text in LIMITS][len(LIMITS) - count :]
    assert line.startswith(f"torch {version} is older than 2.9, so ") == bool(count)


def test_several_limits_are_one_sentence() -> None:
    first, second, third = (text for _, text in LIMITS)
    assert find_limits("2.5.1") == f"torch 2.5.1 is older than 2.9, so {first}, {second} and {third}"
    assert find_limits("2.6.0") == f"torch 2.6.0 is older than 2.9, so {second} and {third}"
    assert find_limits("2.8.0") == f"torch 2.8.0 is older than 2.9, so {third}"


@pytest.mark.parametrize(
    ("image", "version"),
    [
        ("pytorch/pytorch:2.1.2-cuda12.1-cudnn8-runtime", "2.1.2"),
        ("registry.lab:5000/aws/pytorch-training:2.3.0-gpu-py311-ubuntu20.04-ec2", "2.3.0"),
        ("ghcr.io/lab/train:py310-torch2.4.1", "2.4.1"),
        ("ghcr.io/lab/torch-2.2:7@sha256:0123", "2.2"),
        ("nvcr.io/nvidia/pytorch:25.01-py3", None),  # a month
        ("registry.lab:5000/pytorch", None),
        ("pytorch/pytorch", None),
        ("pytorch/pytorch:latest", None),
        ("ghcr.io/lab/train:2.1", None),  # its own version
    ],
)
def test_torch_is_known_by_the_names_that_tell_it(image: str, version: str | None) -> None:
    assert version_in(image) == version
