"""Texts of Google Cloud that have a form."""

from typing import Annotated

from infra.config import Form

Region = Annotated[str, Form(r"[a-z]+-[a-z]+\d+", "a region such as us-central1")]
ProjectId = Annotated[str, Form(r"[a-z][a-z0-9-]{4,28}[a-z0-9]", "a project's id such as my-project-123, not its name or number")]
Cidr = Annotated[str, Form(r"\d{1,3}(\.\d{1,3}){3}/\d{1,2}", "a range of IPv4 addresses such as 198.51.100.0/24")]
Resource = Annotated[str, Form(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?", "a name of a-z, 0-9 and -, first a letter, last no -")]
Person = Annotated[
    str,
    Form(r"(user|group|serviceAccount):[^\s@:]+@[^\s@:]+\.[a-z]+", "an identity such as group:research@example.org or user:..."),
]
Group = Annotated[str, Form(r"gke-security-groups@[^\s@:]+\.[a-z]+", "the group gke-security-groups@<your domain>")]
Version = Annotated[str, Form(r"1\.\d+(\.\d+-gke\.\d+)?", "a version such as 1.35 or 1.35.0-gke.1171000, in quotes")]
Hour = Annotated[str, Form(r"([01]\d|2[0-3]):00", "a full hour such as 03:00, in quotes")]
LabelKey = Annotated[str, Form(r"[a-z][a-z0-9_-]{0,62}", "63 of a-z, 0-9, _ and -, first a letter")]
LabelValue = Annotated[str, Form(r"[a-z0-9_-]{0,63}", "63 of a-z, 0-9, _ and -")]
Address = Annotated[str, Form(r"\d{1,3}(\.\d{1,3}){3}", "an IPv4 address such as 10.0.0.2")]
Share = Annotated[str, Form(r"[a-z][a-z0-9_]{0,15}", "16 of a-z, 0-9 and _, first a letter")]
ImageReference = Annotated[
    str,
    Form(
        r"[^\s:@]+(:\d+)?(/[^\s:@]+)*(@sha256:[0-9a-f]{64}|:(?!latest$)[\w.-]+(@sha256:[0-9a-f]{64})?)",
        "an image with a digest, name@sha256:<64 digits>, or at least a tag other than latest",
    ),
]
