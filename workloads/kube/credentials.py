"""How one gets into an API server: kubernetes_asyncio reads kubeconfigs, service accounts and the clouds' exec plugins.

Its typed models are left out: they parse every object twice.
"""

import os
import ssl
from pathlib import Path
from typing import Protocol, cast

from workloads.kube.errors import ConfigError

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")


class Credentials(Protocol):
    """The part of kubernetes_asyncio's Configuration that is used here."""

    host: str
    ssl_ca_cert: str | None
    cert_file: str | None
    key_file: str | None
    verify_ssl: bool
    tls_server_name: str | None
    proxy: str | None

    async def auth_settings(self) -> dict[str, dict[str, str]]: ...


async def load(kubeconfig: str | None, context: str | None) -> Credentials:
    """Load credentials: the named kubeconfig, else a pod's service account, else $KUBECONFIG or ~/.kube/config."""
    from kubernetes_asyncio import client, config  # noqa: PLC0415 - 0.3 s to import; `ebb --help` need not pay it

    loaded = client.Configuration()
    try:
        if kubeconfig is None and "KUBERNETES_SERVICE_HOST" in os.environ and SERVICE_ACCOUNT.exists():
            config.load_incluster_config(client_configuration=loaded)  # type: ignore[no-untyped-call]
        else:
            await config.load_kube_config(config_file=kubeconfig, context=context, client_configuration=loaded)
    except (config.ConfigException, OSError, TypeError) as error:
        where = kubeconfig or os.environ.get("KUBECONFIG") or "~/.kube/config"
        fix = "Set KUBECONFIG or EBB_KUBECONFIG to a file that works with kubectl."
        raise ConfigError(f"no usable kubeconfig at {where}: {error}. {fix}") from error
    return cast(Credentials, loaded)


def tls(credentials: Credentials) -> ssl.SSLContext:
    """What to trust, and the client certificate if there is one."""
    context = ssl.create_default_context(cafile=credentials.ssl_ca_cert)
    if credentials.cert_file:
        context.load_cert_chain(credentials.cert_file, keyfile=credentials.key_file)
    if not credentials.verify_ssl:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context
