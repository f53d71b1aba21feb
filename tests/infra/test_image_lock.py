"""Images of others are named by digest where the lock has it, and the lock is what registries say."""

import json
from pathlib import Path

import pytest

from infra import clouds, commands, config, image_lock, registries
from infra.account import preflight
from infra.account.costs import groups_of
from infra.account.records import Finding
from infra.config import ROOT, ConfigError
from infra.policies.cluster import PODS
from tests.infra.cases import CASES, Case
from tests.infra.policies import declarations


def run_images(monkeypatch: pytest.MonkeyPatch, images: list[str]) -> None:
    """The stack `local` runs these images of others."""
    monkeypatch.setattr(type(clouds.named("local")), "upstream_images", lambda *_: images)


def test_the_lock_is_what_registries_say(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "images.lock.yaml"
    base, plugin, scaler = "example.org/base:3", "example.org/plugin:v1", "example.org/scaler:v2"
    run_images(monkeypatch, [plugin, f"{base}@sha256:{'a' * 64}", scaler])
    old, new = (f"sha256:{letter * 64}" for letter in "ab")
    image_lock.write({plugin: old, base: old, "example.org/of/another:1": old}, path)

    def resolve(image: str) -> str:
        if image == base:
            raise registries.NotResolvedError("it does not answer")
        return new

    assert image_lock.lock_stack("local", path=path, resolve=resolve) == commands.EXIT_BAD
    lock = image_lock.read(path)
    assert lock == {plugin: new, base: old, scaler: new, "example.org/of/another:1": old}
    told = capsys.readouterr().out.splitlines()
    assert f"  {new}  moved, was {old}" in told
    assert f"  {new}  new" in told
    assert "  -> as it was: it does not answer" in told
    assert json.loads(told[-1]) == {
        "stack": "local", "images": 3, "changed": [plugin, scaler], "failed": {base: "it does not answer"},
    }  # fmt: skip
    assert image_lock.lock_stack("local", path=path, resolve=lambda image: new) == commands.EXIT_GOOD
    assert [image_lock.pinned(one, image_lock.read(path)) for one in (base, "example.org/x:1")] == [
        f"{base}@{new}",
        "example.org/x:1",
    ]
    assert [one.name for one in tmp_path.iterdir()] == ["images.lock.yaml"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: [", "is not YAML"),
        ("- a", r"found \['a'\]; allowed are lines of image: sha256:"),
        ("example.org/a:1: sha256:12", "found 'example.org/a:1': 'sha256:12'; allowed is HOST/NAME:TAG: sha256: and 64"),
        (f"python: sha256:{'a' * 64}", "found 'python'"),
    ],
)
def test_a_lock_that_is_wrong_is_one_sentence(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "images.lock.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=words):
        image_lock.read(path)


ALPHA, BETA = f"example.org/alpha:1@sha256:{'a' * 64}", "example.org/beta:2"


@pytest.mark.parametrize(
    ("images", "found"),
    [
        (
            [ALPHA, BETA, BETA],
            Finding(
                level="warn",
                text=f"1 of 2 images of others are named by a tag, which their publisher can move: {BETA}",
                fix="make lock-images STACK=local",
            ),
        ),
        ([ALPHA], Finding(level="ok", text="all 1 images of others are named by digest")),
    ],
    ids=["some", "none"],
)
def test_preflight_names_what_a_tag_alone_names(images: list[str], found: Finding, monkeypatch: pytest.MonkeyPatch) -> None:
    stack = config.read("local")
    assert list(preflight.digests("local", stack)) == []
    run_images(monkeypatch, images)
    assert list(preflight.digests("local", stack)) == [found]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_image_of_a_pod_has_a_digest_or_can_be_locked(case: Case) -> None:
    """A new program in the cluster cannot be forgotten by upstream_images."""
    stack = config.read(case.stack)
    upstream = {*clouds.named(stack.cloud).upstream_images(stack, groups_of(stack))}
    lock = image_lock.read(image_lock.LOCK)
    pods = [pod for one in declarations(case.stack) for path in PODS if isinstance(pod := one.get(path), dict)]
    found = {container["image"] for pod in pods for kind in ("initContainers", "containers") for container in pod.get(kind, ())}
    assert len(found) > 2
    assert {one for one in found if "@sha256:" not in one} - upstream == set()
    assert {image.partition("@")[0] for image in upstream if "@" in image} == {image.partition("@")[0] for image in upstream} & {
        *lock
    }


def test_files_that_people_apply_name_images_of_others_by_digest() -> None:
    files = [path.read_text() for path in (ROOT / "workloads" / "manifests").rglob("*.yaml")]
    lines = [line.split() for text in files for line in text.splitlines()]
    named = [words[1] for words in lines if words[:1] == ["image:"] and "/" in words[1]]
    tags = [words[1] for words in lines if words[:1] == ["newTag:"]]
    assert (len(named), len(tags)) >= (4, 3)
    assert [one for one in (*named, *tags) if "@sha256:" not in one] == ["dev"]  # the controller's, which who applies them builds
