"""`ebb submit`."""

import secrets
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from textwrap import wrap
from typing import Annotated, Any

import typer
import yaml

from ebb.cli.asked import JobOptions, Program, takes_job_options
from ebb.cli.errors import exit_code_of
from ebb.cli.exits import Exit
from ebb.cli.options import Format, Namespace, Output, Session, note, print_json, record, run, session_of
from ebb.cli.render import make_console, plan
from ebb.cli.terminal import Writer, confirm, is_interactive
from ebb.client.errors import BadRequest, NoPlatform
from ebb.client.gpus import gpus
from ebb.client.jobs.view import JobView
from ebb.client.logs import follow_logs, on_volume
from ebb.client.platform.connection import Ebb
from ebb.client.secrets.store import check_there
from ebb.client.staging.clone import Clone, clone, fitting, stem_of
from ebb.client.staging.code import amount, packed
from ebb.client.staging.delivery import CodePlace
from ebb.client.submission.fit import price
from ebb.client.submission.offline import NO_NAMESPACE, Offline, prepare_offline
from ebb.client.submission.outlook import Outlook, outlook
from ebb.client.submission.request import Request, check
from ebb.client.submission.submit import Prepared, prepare, prepare_whole
from ebb.client.submission.submit import submit as send
from ebb.kube import KubeconfigError, KubeError, Unreachable


@takes_job_options
def submit(
    ctx: typer.Context,
    asked: JobOptions,
    program: Program = None,
    *,
    origin: Annotated[
        str | None, typer.Option("--from", metavar="JOB", help="Submit as that job was; flags win. With --platform: to that one.")
    ] = None,
    resume: Annotated[
        bool | None,
        typer.Option("--resume-from-checkpoint/--fresh", help="With --from; default: fresh here, resumed on another platform."),
    ] = None,
    yes: Annotated[bool, typer.Option("-y", "--yes", help="Send it without asking for confirmation.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the manifest, send nothing.")] = False,
    follow: Annotated[bool, typer.Option("--follow", help="Show the logs until the job ends.")] = False,
    namespace: Namespace = None,
    output: Format = Output.TEXT,
) -> None:
    """Start a job: ebb submit --gpus 2 --gpu T4 -- python train.py"""
    if origin is None and resume is not None:
        raise BadRequest("--resume-from-checkpoint and --fresh say how a clone begins: name the job with --from JOB.")
    made = Submission(asked, tuple(program or ()), namespace, output, origin, resume)
    raise typer.Exit(run(made.send(session_of(ctx), yes=yes, dry_run=dry_run, follow=follow)))


@dataclass(frozen=True)
class Submission:
    """A submission as the user gave it, before the platform is known."""

    asked: JobOptions
    program: tuple[str, ...]
    namespace: str | None
    output: Output
    origin: str | None = None
    resume: bool | None = None

    async def send(self, session: Session, *, yes: bool, dry_run: bool, follow: bool) -> Exit:
        whole = self.asked.is_whole(self.program)
        if whole and self.origin:
            raise BadRequest("from: a file of kind ElasticJob is sent as it is. Give a short job file, or leave --from out.")
        request = None if whole or self.origin else self._request()  # what can be refused without a platform is refused first
        code = packed(Path(request.code), note) if request and request.code else None
        async with AsyncExitStack() as opened:
            try:
                ebb = await opened.enter_async_context(session.open(self.namespace))
            except (NoPlatform, KubeconfigError, Unreachable) as error:
                if not dry_run or self.origin:
                    raise
                self._show_without_platform(error, prepare_offline(request, self.namespace, code) if request else self._whole())
                return Exit.OK
            made = await self._clone(session, ebb, opened) if self.origin else None
            if request is not None:
                prepared = prepare(ebb, request, code, note=note)
            else:
                prepared = prepare_whole(ebb, self.asked.file, self.namespace) if made is None else self._prepare_clone(ebb, made)
            await check_there(ebb, prepared.body["metadata"].get("namespace") or ebb.namespace, prepared.body)
            seen = None if dry_run else await _outlook(ebb, prepared)
            self._show(ebb, prepared, seen, made, dry_run=dry_run)
            if dry_run:
                return Exit.OK
            if not yes and self._declined():
                note("Nothing was sent.")
                return Exit.FAILED
            if made:
                await made.bring(note)
            job = await send(ebb, prepared.body, code=prepared.code, note=note)
            self._report(job, prepared, seen)
            if not follow:
                return Exit.OK
            writer = Writer(colour=make_console().is_terminal, json=self.output is Output.JSON)
            async with on_volume(ebb, writer.note) as files:
                return exit_code_of(await follow_logs(ebb.kube, job.namespace, job.name, writer, files=files))

    async def _clone(self, session: Session, ebb: Ebb, opened: AsyncExitStack) -> Clone:
        assert self.origin is not None
        source = await opened.enter_async_context(session.open_before(self.namespace)) if session.named_after else ebb
        told = (self.asked.flags.get("code"), self.asked.file.get("code"))
        return await clone(source, self.origin, ebb, resume=self.resume, code=told == (None, None), note=note)

    def _request(self) -> Request:
        """The request with its code, whatever the platform. Raises BadRequest."""
        request = self.asked.request(self.program, suffix=secrets.token_hex(2))
        check(request)
        return self.asked.with_code(request, self.program)

    def _whole(self) -> Offline:
        """A whole ElasticJob, which only a namespace may be missing from."""
        metadata = {**self.asked.file["metadata"], **({"namespace": self.namespace} if self.namespace else {})}
        missing = () if "namespace" in metadata else (NO_NAMESPACE,)
        return Offline(body={**self.asked.file, "metadata": metadata}, missing=missing)

    def _prepare_clone(self, ebb: Ebb, made: Clone) -> Prepared:
        """With the code of the job that is cloned, if any, unless another folder is named."""
        suffix = secrets.token_hex(2)
        asked = JobOptions(cloned(made, self.asked, suffix), self.asked.flags)
        request = replace(asked.request(self.program, suffix=suffix), resume_from=made.resume_from)
        if request.code:
            request = asked.with_code(request, self.program)
        return prepare(ebb, request, made.code, note=note)

    def _show(self, ebb: Ebb, prepared: Prepared, seen: Outlook | None, made: Clone | None, *, dry_run: bool) -> None:
        body, text = prepared.body, self.output is Output.TEXT
        if prepared.request and prepared.fit and text:
            console = make_console(stderr=dry_run)
            lines = {
                "now": seen.sentence if seen else "",
                "most": _most(prepared, seen),
                "code": _code(prepared.code),
                "start": _start(made),
            }
            arguments = body["spec"]["replicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]["args"]
            console.print(plan(prepared.request, prepared.fit, ebb.platform, arguments, console.width, **lines))
        if dry_run:
            typer.echo(yaml.safe_dump(body, sort_keys=False), nl=False) if text else print_json(body)

    def _show_without_platform(self, error: Exception, offline: Offline) -> None:
        """The manifest as far as it is known, and in comments above it what a platform would add."""
        lines = [f"no platform answers, so this is not all of the job: {error}", *offline.missing]
        if self.output is Output.JSON:
            note("\n".join(lines))
            print_json(offline.body)
            return
        typer.echo("".join(f"# {line}\n" for text in lines for line in wrap(text, 118)), nl=False)
        typer.echo(yaml.safe_dump(offline.body, sort_keys=False), nl=False)

    def _declined(self) -> bool:
        return self.output is Output.TEXT and is_interactive() and not confirm("Start it?")

    def _report(self, job: JobView, prepared: Prepared, seen: Outlook | None) -> None:
        if self.output is Output.JSON:
            fit = prepared.fit
            told: Mapping[str, Any] = {
                "price": record(price(fit, fit.workers)) if fit else None,
                "outlook": record(seen) if seen else None,
                "code": prepared.code.code.sha256 if prepared.code else "",
            }
            print_json({"job": record(job), **told})
        else:
            typer.echo(f"{job.name} is submitted. Watch: ebb status {job.name} --watch, ebb logs -f {job.name}")


def cloned(made: Clone, asked: JobOptions, suffix: str) -> dict[str, Any]:
    """Return what was cloned, as a job file below the one that is given."""
    told = {**asked.file, **{key: value for key, value in asked.flags.items() if value is not None}}
    settings = fitting(made.settings, told)
    variables = {**settings.get("env", {}), **(asked.file.get("env") or {})}
    told_secrets = asked.file.get("secret") or []
    secrets = [*settings.get("secret", []), *(told_secrets if isinstance(told_secrets, list) else [told_secrets])]
    return {"name": f"{stem_of(made.name)}-{suffix}", **settings, **asked.file, "env": variables, "secret": secrets}


def _start(made: Clone | None) -> str:
    if made is None:
        return ""
    found = f" ({made.checkpoint.words})" if made.checkpoint else ""
    return f"{made.name}'s newest checkpoint{found}" if made.resume_from else f"anew, as {made.name} did"


async def _outlook(ebb: Ebb, prepared: Prepared) -> Outlook | None:
    """None for a whole ElasticJob, whose machines its author knows."""
    if prepared.request is None or prepared.fit is None:
        return None
    try:
        seen = await gpus(ebb, reclaims=False)
    except KubeError as error:
        note(f"It is not known whether machines are free: {error}")
        return None
    return outlook(prepared.request, prepared.fit, seen, now=time.time())


def _most(prepared: Prepared, seen: Outlook | None) -> str:
    if seen is None or prepared.request is None:
        return ""
    if seen.usd_at_most is None:
        return "no limit; --max-cost or --deadline sets one"
    until = f", until {prepared.request.deadline}" if prepared.request.deadline else ""
    return f"${seen.usd_at_most:.2f}{until}"


def _code(place: CodePlace | None) -> str:
    if place is None:
        return ""
    code = place.code
    if not code.files:  # a clone's
        return f"{code.folder}, version {code.sha256[:12]}"
    files = "1 file" if code.files == 1 else f"{code.files} files"
    return f"{code.folder}: {files}, {amount(code.size_bytes)} packed, version {code.sha256[:12]}"
