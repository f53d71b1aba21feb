"""Addresses of buckets, and where their copies are. Pure.

url = parse_url("s3://imagenet/train")        # BucketUrl(scheme="s3", bucket="imagenet", prefix="train")
folder_of(url)                                # "imagenet-train-5f1c02aa": jobs with the same address share one copy
"""

import hashlib
import re
from dataclasses import dataclass

SCHEMES = {"s3": "S3", "gs": "Google Cloud Storage", "az": "Azure Blob Storage"}
CREDENTIALS = {  # variables that Rust's object_store knows
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    "gs": "GOOGLE_SERVICE_ACCOUNT_KEY",
    "az": "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY",
}
_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]{1,61}[a-z0-9]")  # the three clouds' rules, less what they add to them


class UrlError(ValueError):
    """The text is no address of a bucket; the message says what is allowed."""


@dataclass(frozen=True, kw_only=True)
class BucketUrl:
    """The objects whose keys begin with `prefix` and a slash; with no prefix, all."""

    scheme: str
    bucket: str
    prefix: str = ""

    def __str__(self) -> str:
        return self.of(self.prefix).rstrip("/")

    def of(self, key: str) -> str:
        """The address of one object."""
        return f"{self.scheme}://{self.bucket}/{key}"


def is_url(text: str) -> bool:
    """Return whether this is meant as an address, and not as a folder."""
    return "://" in text


def parse_url(text: str) -> BucketUrl:
    """Raises UrlError."""
    scheme, _, rest = text.partition("://")
    if scheme not in SCHEMES:
        known = ", ".join(f"{one}://" for one in SCHEMES)
        raise UrlError(f"{text!r} is no bucket that Ebb can copy: use one of {known}, as in s3://bucket/folder.")
    bucket, _, prefix = rest.partition("/")
    if not _BUCKET.fullmatch(bucket):
        raise UrlError(
            f"{text!r}: {bucket!r} is no name of a bucket; allowed are 3 to 63 of a-z, 0-9, '.', '-' and '_', as in "
            f"{scheme}://bucket/folder."
        )
    prefix = prefix.strip("/")
    if any(part in ("", ".", "..") for part in prefix.split("/")) and prefix:
        raise UrlError(f"{text!r}: the path in the bucket has an empty part, '.' or '..': write it as s3://bucket/folder/inner.")
    return BucketUrl(scheme=scheme, bucket=bucket, prefix=prefix)


def folder_of(url: BucketUrl) -> str:
    """The copy's folder: readable, and different for different addresses."""
    words = re.sub(r"[^a-z0-9]+", "-", f"{url.bucket}-{url.prefix}".lower()).strip("-")[:40].strip("-")
    return f"{words}-{hashlib.sha256(str(url).encode()).hexdigest()[:8]}"
