"""What a job has written: the folder of its own on the output volume, also after it was deleted.

listing = await outputs(ebb, "digits")
await fetch(ebb, "digits", "checkpoints", "results/")
"""

import re

from ebb.api.contract import OUTPUT_ROOT
from ebb.client.errors import BadRequest, Missing
from ebb.client.files.data import Listing, Show, Silent, Transfer, get_by
from ebb.client.files.files import Files, gateway
from ebb.client.logs.sources import job_folder
from ebb.client.platform.ebb import Ebb
from ebb.client.platform.reach import read_job


async def list_outputs(ebb: Ebb, job: str, path: str = "", *, recursive: bool = False) -> Listing:
    """What is in a job's folder, or in a part of it. Raises Missing, BadRequest, ClientError, KubeError."""
    async with gateway(ebb) as files:
        folder = await _folder(ebb, files, job, path)
        try:
            return Listing(path=folder, entries=await files.list(folder, recursive=recursive))
        except Missing as error:
            raise Missing(f"{job} has written nothing{f' at {path}' if path else ''} so far: {folder} is not there.") from error


async def fetch_outputs(
    ebb: Ebb, job: str, path: str = "", target: str = "", show: Show | None = None, *, checksum: bool = False
) -> Transfer:
    """Fetch a job's folder or a part of it; without a target into a folder of the job's name here. Raises as `list_outputs`."""
    async with gateway(ebb) as files:
        folder = await _folder(ebb, files, job, path)
        return await get_by(files, folder, target or (f"{job}/" if path else job), show or Silent(), checksum=checksum)


async def _folder(ebb: Ebb, files: Files, job: str, path: str) -> str:
    if path.startswith("/") or ".." in path.split("/"):
        raise BadRequest(f"path {path!r} is refused: name what is in the job's folder, as `ebb outputs {job}` shows it.")
    try:
        folder = job_folder(await read_job(ebb.kube, ebb.namespace, job))
    except Missing as missing:
        folder = await _of_deleted(files, f"{OUTPUT_ROOT}/{ebb.namespace}", job, missing)
    return f"{folder}/{path}".rstrip("/")


async def _of_deleted(files: Files, root: str, job: str, missing: Missing) -> str:
    """The newest folder of a job of that name."""
    try:
        found = await files.list(root)
    except (Missing, BadRequest):  # nobody has written anything, or the platform has no such volume
        found = ()
    name = re.compile(rf"{re.escape(job)}-[0-9a-f]{{8}}")
    folders = [one for one in found if one.kind == "folder" and name.fullmatch(one.name)]
    if not folders:
        raise missing
    return f"{root}/{max(folders, key=lambda one: one.modified_ns).name}"
