"""Where a job's workers meet: by which rendezvous backend of torch's, and at which etcd. Pure.

    met = rendezvous(job, worker_container(containers), platform)     # Rendezvous(backend="etcd3", endpoint="etcd-service:2379")

What the author told the launcher counts first, then spec.rdzvBackend, then what is usual on the stack. An etcd that the author
runs is his own: it is used as it is written. On a cluster that no stack of ours describes, nothing is known of any etcd.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from ebb.api import contract as names
from ebb.api.platform import Platform
from ebb.api.spec import Job

PREFIX, ENV_RDZV_CONF = "/torchelastic/p2p", "PET_RDZV_CONF"  # torch's own, and how it is told of another
NEED_V2 = frozenset({names.BACKEND_ETCD, "etcd-v2"})  # torch's two: they speak the API that etcd 3.6 no longer has


@dataclass(frozen=True, kw_only=True)
class Rendezvous:
    """`problem`: why workers could not meet there, and what to do; "" if they can. `prefix`: under it torch would make a folder
    for the run that ends after two hours; the controller makes it first, without an end (etcd/legacy.py). "": it need not."""

    backend: str
    endpoint: str
    problem: str = ""
    prefix: str = ""

    def folder(self, meeting: str) -> str:
        """Of the run with that id."""
        return f"{self.prefix}/run_{meeting}"


def rendezvous(job: Job, container: Mapping[str, Any], platform: Platform | None) -> Rendezvous:
    """`container`: the one of the job's template that trains."""
    said, written = flags(container), variables(container)
    asked = said.get("rdzv_backend") or written.get(names.ENV_RDZV_BACKEND) or job.spec.rdzv_backend
    usual = platform.usual_backend(str(container.get("image", ""))) if platform else names.BACKEND_ETCD3
    backend, endpoint = asked or usual, job.spec.rdzv_endpoint
    if backend not in NEED_V2 or "rdzv_endpoint" in said or names.ENV_RDZV_ENDPOINT in written:
        return Rendezvous(backend=backend, endpoint=endpoint)
    older = platform.legacy_etcd_endpoint if platform else names.LEGACY_ETCD
    if platform and platform.is_etcd(endpoint):
        if not older:
            return Rendezvous(backend=backend, endpoint=endpoint, problem=_missing(backend))
        endpoint = older
    kept = backend == names.BACKEND_ETCD and endpoint == older  # what etcd-v2 keeps there lives as long as its members
    settings = said.get("rdzv_conf") or written.get(ENV_RDZV_CONF) or ""
    return Rendezvous(backend=backend, endpoint=endpoint, prefix=_prefix(settings) if kept else "")


def run_id(container: Mapping[str, Any], usual: str) -> str:
    """The author's, or else the usual one."""
    return flags(container).get("rdzv_id") or variables(container).get(names.ENV_RDZV_ID) or usual


def _missing(backend: str) -> str:
    return (
        f"the job asks for torch's {backend!r} rendezvous, whose API the stack's etcd no longer has. If its image has Ebb's "
        f"trainer, ask for {names.BACKEND_ETCD3!r} (spec.rdzvBackend, or --rdzv_backend in args); if not, set "
        "ebb:legacyRendezvous to true in the stack and run `pulumi up`: that brings an etcd 3.5 beside the other."
    )


def _prefix(settings: str) -> str:
    """Where torch makes the folders of runs; `settings` as of --rdzv_conf: a=b,c=d."""
    found = dict(pair.partition("=")[::2] for pair in settings.split(","))
    return f"/{found.get('etcd_prefix', PREFIX).strip('/')}"


def flags(container: Mapping[str, Any]) -> dict[str, str]:
    """Flags that the author wrote, and what follows them."""
    words = [str(word) for word in (*(container.get("command") or []), *(container.get("args") or []))]
    found = {}
    for word, following in zip_longest(words, words[1:], fillvalue=""):
        if word.startswith("--"):
            name, _, value = word.removeprefix("--").partition("=")
            found[name.replace("-", "_")] = value or following
    return found


def variables(container: Mapping[str, Any]) -> dict[str, str]:
    """Variables that the author wrote; those whose value comes from elsewhere are empty."""
    return {variable["name"]: variable.get("value") or "" for variable in container.get("env") or []}
