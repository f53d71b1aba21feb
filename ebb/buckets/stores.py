"""Buckets behind one interface, and their errors as sentences.

    bucket = open_bucket("s3://imagenet/train")          # credentials: the pod's identity, or AWS_*, GOOGLE_*, AZURE_* variables
    for name, item in bucket.list(): ...                 # name: below the prefix
    bucket.read(item, 0, 4096)

    BucketError      a person has to do something: a name, a right, a credential. The same again would fail the same
    Interrupted      the network or the store; the same again may work

obstore (Rust's object_store) reads the three clouds' stores by one set of calls, and finds the identity that a cloud gives to a
pod: EKS Pod Identity and IRSA, GKE and Azure Workload Identity.
"""

import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

from ebb.api.buckets import CREDENTIALS, BucketUrl, UrlError, parse_url

T = TypeVar("T")
# obstore's own tries of one request. A copy that gives up starts again as a new pod, so it need not try for long.
_RETRIES: Mapping[str, Any] = {"max_retries": 5, "retry_timeout": timedelta(seconds=60)}
# Without any credentials obstore asks the machine's metadata, which does not answer a pod: the text that it ends with.
_NO_CREDENTIALS = ("169.254.169.254", "metadata.google.internal", "instance metadata", "credentials")
_REDIRECTED = ("PermanentRedirect", "AuthorizationHeaderMalformed", "region")
_ENDPOINTS = ("AWS_ENDPOINT_URL", "AWS_ENDPOINT", "AZURE_STORAGE_ENDPOINT")  # of stores that are no cloud's


class BucketError(Exception):
    """See the module's docstring."""


class Interrupted(Exception):
    """See the module's docstring."""


class Gone(Exception):
    """The object is not there any more."""


class Changed(Exception):
    """The object is another one than that which was listed."""


@dataclass(frozen=True, slots=True)
class Item:
    """An object: its whole key, its size, and the mark of this version of it."""

    key: str
    size: int
    etag: str


class Bucket:
    """The objects below one prefix. Safe for many threads."""

    def __init__(self, url: BucketUrl, store: Any) -> None:
        self.url, self._store = url, store

    def list(self) -> Iterator[tuple[str, Item]]:
        """Each object, by its name below the prefix; where the address is that of one object, that. Raises BucketError."""
        prefix, found = self.url.prefix, False
        for item in self._files(prefix):
            found = True
            yield (item.key.removeprefix(f"{prefix}/") if prefix else item.key), item
        if found:
            return
        if not prefix:
            raise BucketError(f"{self.url} is empty: there is nothing to copy.")
        try:
            item = self.head(prefix)
        except Gone:
            raise BucketError(
                f"{self.url} is not there: no object of the bucket begins with {prefix}/. Check the path."
            ) from None
        yield prefix.rpartition("/")[2], item

    def _files(self, prefix: str) -> Iterator[Item]:
        """The objects below the prefix, without the marks that consoles make for folders: empty objects called "train/". The
        library takes their last slash away; unlike an empty file, such a mark has the next object below it."""
        held: Item | None = None
        for chunk in self._asked(lambda: iter(self._store.list(prefix=prefix or None, chunk_size=1000))):
            for item in map(_item, chunk):
                if held and not item.key.startswith(f"{held.key}/"):
                    yield held
                held = None
                if item.size == 0 and item.key != prefix:
                    held = item
                elif item.key != prefix:
                    yield item
        if held:
            yield held

    def head(self, key: str) -> Item:
        """The object as it is now. Raises Gone, BucketError, Interrupted."""
        return _item(self._call(lambda: self._store.head(key), of_object=True))

    def read(self, item: Item, start: int, length: int) -> memoryview:
        """Bytes of exactly this version. Raises Gone, Changed, BucketError, Interrupted."""
        if length == 0:
            return memoryview(b"")
        options: dict[str, Any] = {"range": (start, start + length), **({"if_match": item.etag} if item.etag else {})}
        data = self._call(lambda: memoryview(self._store.get(item.key, options=options).bytes()), of_object=True)
        if len(data) != length:
            raise Interrupted(f"{self.url.of(item.key)}: {len(data)} of {length} bytes came")
        return data

    def _asked(self, start: Callable[[], Iterator[Any]]) -> Iterator[Any]:
        chunks = self._call(start)
        while True:
            chunk = self._call(lambda: next(chunks, None))
            if chunk is None:
                return
            yield chunk

    def _call(self, ask: Callable[[], T], *, of_object: bool = False) -> T:
        from obstore import exceptions  # noqa: PLC0415 - the copying pod alone has it

        try:
            return ask()
        except exceptions.PreconditionError as error:
            raise Changed from error
        except (exceptions.NotFoundError, FileNotFoundError) as error:
            if of_object and "NoSuchBucket" not in str(error):
                raise Gone from error
            raise BucketError(self._missing()) from error
        except (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError) as error:
            raise BucketError(self._refused(str(error))) from error
        except exceptions.BaseError as error:
            raise self._other(str(error)) from error

    def _missing(self) -> str:
        return f"bucket {self.url.bucket!r} of {self.url} does not exist: check its name{self._where()}."

    def _refused(self, text: str) -> str:
        code = re.search(r"<Code>(\w+)</Code>", text)
        words = f" ({code[1]})" if code else ""
        return (
            f"{self.url.scheme}://{self.url.bucket} refuses the copy{words}: the credentials are wrong, or may not list and read "
            f"this bucket. {self._fix()}"
        )

    def _fix(self) -> str:
        return (
            f"Give the job {CREDENTIALS[self.url.scheme]} by `ebb secret set` and --secret, or ask whoever runs the platform to "
            "let it read the bucket."
        )

    def _where(self) -> str:
        return " and AZURE_STORAGE_ACCOUNT_NAME" if self.url.scheme == "az" else ""

    def _other(self, text: str) -> Exception:
        """An error without a kind of its own: by its text."""
        if "NoSuchBucket" in text or "ContainerNotFound" in text or "The specified bucket does not exist" in text:
            return BucketError(self._missing())
        if any(word in text for word in ("InvalidAccessKeyId", "SignatureDoesNotMatch", "AccessDenied", "InvalidClientTokenId")):
            return BucketError(self._refused(text))
        if self.url.scheme == "s3" and any(word in text for word in _REDIRECTED[:2]):
            return BucketError(f"{self.url} is in another region: give the job its region, as in --env AWS_REGION=eu-west-1.")
        short = _short(text)
        if any(word in text for word in _NO_CREDENTIALS):
            return BucketError(f"{self.url.scheme}://{self.url.bucket}: no credentials were found. {self._fix()} ({short})")
        return Interrupted(f"{self.url}: {short}")


def open_bucket(text: str) -> Bucket:
    """Raises BucketError. Nothing is asked yet."""
    from obstore import exceptions, store  # noqa: PLC0415 - the copying pod alone has it

    try:
        url = parse_url(text)
    except UrlError as error:
        raise BucketError(str(error)) from error
    kinds: Mapping[str, Any] = {"s3": store.S3Store, "gs": store.GCSStore, "az": store.AzureStore}
    plain = any(os.environ.get(key, "").startswith("http://") for key in _ENDPOINTS)
    client = {"allow_http": plain, "timeout": "60s"}
    try:
        made = kinds[url.scheme](url.bucket, client_options=client, retry_config=_RETRIES)
    except (exceptions.BaseError, ValueError) as error:
        raise BucketError(f"{url} cannot be opened: {_short(str(error))}. Give the job {CREDENTIALS[url.scheme]}.") from error
    return Bucket(url, made)


def _short(text: str) -> str:
    """The error in one line, without the insides that the library adds."""
    return " ".join(text.partition("Debug source")[0].split())[:300].rstrip(".")


def _item(meta: Mapping[str, Any]) -> Item:
    return Item(key=meta["path"], size=meta["size"], etag=meta.get("e_tag") or "")
