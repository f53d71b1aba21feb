"""The jobs of a stack: read from their files, and checked as far as the stack is concerned. The API server checks the rest."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from infra.config.section import Problem
from workloads.cluster import JOB_API, JOB_KIND


def read(entries: Any, root: Path) -> tuple[list[tuple[str, Any]], list[Problem]]:
    """Jobs with where they stand. They are written in place, or named as files of which each may hold several."""
    jobs, problems = [], []
    for index, entry in enumerate(entries if isinstance(entries, list) else []):
        where = f"jobs[{index}]"
        if not isinstance(entry, str):
            jobs.append((where, entry))
            continue
        try:
            jobs += [(f"{where} ({entry})", one) for one in yaml.safe_load_all((root / entry).read_text()) if one]
        except OSError as error:
            problems.append(Problem(where, f"cannot read {entry!r} ({error.strerror}): give a path relative to the checkout"))
        except yaml.YAMLError as error:
            problems.append(Problem(where, f"{entry} is not YAML: {' '.join(str(error).split())}"))
    if entries is not None and not isinstance(entries, list):
        problems.append(Problem("jobs", f"found {entries!r}; allowed is a list of job files and jobs"))
    return jobs, problems


def problems(jobs: Sequence[tuple[str, Any]]) -> Iterator[Problem]:
    """Jobs that a stack cannot start, or would start again and again."""
    names: set[Any] = set()
    for where, job in jobs:
        if not _is_job(job):
            found = f"{job.get('apiVersion')} {job.get('kind')}" if isinstance(job, dict) else job
            yield Problem(where, f"found {found!r}; allowed is {JOB_API} {JOB_KIND} with a spec (see: ebb submit --dry-run)")
            continue
        name = (job.get("metadata") or {}).get("name")
        if not name:
            yield Problem(
                f"{where}.metadata.name", "missing: a job of a stack needs a name, or every update would start it again"
            )
        elif name in names:
            yield Problem(f"{where}.metadata.name", f"{name!r} is there twice: rename one")
        names.add(name)
        if any("ttlSecondsAfterFinished" in place for place in (job["spec"], job["spec"].get("runPolicy") or {})):
            yield Problem(
                f"{where}.spec.ttlSecondsAfterFinished",
                "a job of a stack may not delete itself: the next `pulumi up` would run it again; remove the key, or submit the "
                "job with `ebb submit`",
            )


def _is_job(job: Any) -> bool:
    if not isinstance(job, Mapping) or not isinstance(job.get("metadata") or {}, Mapping):
        return False
    return (job.get("apiVersion"), job.get("kind")) == (JOB_API, JOB_KIND) and isinstance(job.get("spec"), Mapping)
