"""How `ebb` ends: which exit code every error becomes, with its sentence."""

from ebb.api.platform import PlatformError
from ebb.cli.exits import Exit
from ebb.client.errors import BadRequest, ClientError, Missing, NoPlatform, TimedOut
from ebb.client.jobs.view import FINISHED, JobView
from ebb.kube import ConfigError, Denied, KubeError, NotFound, Unreachable

EXPECTED = (ClientError, PlatformError, KubeError)
"""All errors that end a verb with a sentence; anything else is a bug and shows its traceback."""


def outcome(error: Exception) -> tuple[Exit, str]:
    """The exit code and the sentence for one of EXPECTED."""
    if isinstance(error, Denied):
        return Exit.FAILED, f"not allowed: {error}. Ask the platform's owner, or check which user your kubeconfig names."
    if isinstance(error, KubeError) and (error.status == 429 or error.status >= 500):
        return Exit.NO_PLATFORM, f"the API server cannot answer now: {error}. Try again."
    return next((code for kinds, code in _CODES if isinstance(error, kinds)), Exit.FAILED), str(error)


_CODES = (
    (BadRequest, Exit.USAGE),
    ((NoPlatform, PlatformError, ConfigError, Unreachable), Exit.NO_PLATFORM),
    ((Missing, NotFound), Exit.NOT_FOUND),
    (TimedOut, Exit.TIMED_OUT),
)


def ended(job: JobView) -> Exit:
    """The exit code of a verb that waited for a job's end."""
    return Exit.OK if job.state == FINISHED else Exit.JOB_FAILED
