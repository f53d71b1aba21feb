"""Errors of stores as sentences, and which of them are worth another try."""

from typing import Any

import pytest
from obstore import exceptions

from ebb.api.buckets import parse_url
from ebb.buckets.stores import Bucket, BucketError, Interrupted, open_bucket

NOISE = '\n\nDebug source:\nGeneric { store: "S3", source: RetryError(...) }'


class Failing:
    """A store that answers all with one error."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def list(self, **_: Any) -> Any:
        raise self.error


def said(url: str, error: Exception, kind: type[Exception]) -> str:
    with pytest.raises(kind) as caught:
        list(Bucket(parse_url(url), Failing(error)).list())
    return str(caught.value)


@pytest.mark.parametrize(
    ("url", "error", "says"),
    [
        (
            "s3://data/x",
            exceptions.PermissionDeniedError("<Code>AccessDenied</Code>"),
            "refuses the copy (AccessDenied): the cred",
        ),
        ("gs://data/x", exceptions.UnauthenticatedError("401"), "Give the job GOOGLE_SERVICE_ACCOUNT_KEY by `ebb secret set`"),
        (
            "az://data/x",
            exceptions.GenericError("<Code>ContainerNotFound</Code>"),
            "check its name and AZURE_STORAGE_ACCOUNT_NAME.",
        ),
        ("s3://data/x", FileNotFoundError("NoSuchBucket"), "bucket 'data' of s3://data/x does not exist: check its name."),
        ("s3://data/x", exceptions.GenericError("301 PermanentRedirect"), "is in another region: give the job its region, as in"),
        (
            "s3://data/x",
            exceptions.GenericError("PUT http://169.254.169.254/latest/api/token: 403"),
            "no credentials were found.",
        ),
    ],
    ids=["denied", "unauthenticated", "container", "bucket", "region", "no credentials"],
)
def test_what_a_person_has_to_do_is_said(url: str, error: Exception, says: str) -> None:
    assert says in said(url, error, BucketError)


def test_the_network_is_tried_again_and_the_librarys_insides_stay_out() -> None:
    error = exceptions.GenericError(f"Generic S3 error: connection reset{NOISE}")
    assert said("s3://data/x", error, Interrupted) == "s3://data/x: Generic S3 error: connection reset"


def test_an_account_that_is_missing_is_named_before_anything_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)
    with pytest.raises(BucketError, match=r"Account must be specified\. Give the job AZURE_STORAGE_ACCOUNT_NAME and AZURE_"):
        open_bucket("az://imagenet/x")


class Listed:
    """A store that lists these objects in the order of their keys, as the clouds do, and the library's way with a last slash."""

    def __init__(self, sizes: dict[str, int]) -> None:
        self.sizes = sizes

    def list(self, **_: Any) -> Any:
        found = [{"path": key.rstrip("/"), "size": self.sizes[key], "e_tag": None} for key in sorted(self.sizes)]
        return iter([[one] for one in found])


def test_marks_of_folders_are_no_files_and_empty_files_are() -> None:
    sizes = {"set/": 0, "set/a/": 0, "set/a/b/": 0, "set/a/b/1.jpg": 5, "set/a-b": 3, "set/__init__.py": 0, "set/z": 0}
    names = [name for name, _ in Bucket(parse_url("s3://data/set"), Listed(sizes)).list()]
    assert names == ["__init__.py", "a-b", "a/b/1.jpg", "z"]
    assert [name for name, _ in Bucket(parse_url("s3://data"), Listed({"a/": 0, "a/1": 1})).list()] == ["a/1"]
