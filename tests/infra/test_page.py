"""docs/clouds.md is what the clouds say of themselves."""

import re

import pytest

from infra import catalog, page
from infra.cloud import Cloud, Infrastructure
from tests.infra.cases import CASES, Case


def members(interface: type) -> list[str]:
    return sorted(name for name in {*vars(interface), *interface.__annotations__} if not name.startswith("_"))


def test_the_file_is_up_to_date() -> None:
    assert page.PATH.read_text() == page.text(), "run `make manifests`"


@pytest.mark.parametrize("part", [*members(Cloud), *members(Infrastructure)])
def test_the_page_on_new_clouds_has_the_whole_interface(part: str) -> None:
    assert f"`{part}`" in (page.DOCS / "new-cloud.md").read_text()


def test_every_cloud_and_every_gpu_that_one_has_is_in_it() -> None:
    text = page.text()
    assert all(f" {case.cloud} |" in text for case in CASES)
    assert all(f"\n| {gpu} |" in text for case in CASES for gpu in catalog.gpu_types(case.cloud))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_what_is_not_proven_is_listed_where_it_says(case: Case) -> None:
    said = re.search(
        rf"^- {case}: \[(\d+) points\]\({case}.md#what-is-proven-and-what-only-a[a-z-]+-can-prove\)$", page.text(), re.M
    )
    assert said
    assert int(said[1]) > 0
