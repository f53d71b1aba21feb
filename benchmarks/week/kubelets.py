"""kwok in the place of all kubelets: machines renew their Leases, containers start after a moment. How they leave: exits.py.

    await start_kubelets(plane, keep)          # ends with the exit stack

Only machines with the label groups.ALIVE have one. kwok's own default stages know neither a container that cannot start nor one
that takes its time, hence this one. Pods get addresses of 127.0.0.0/8, a range per run: all of them are this machine.
"""

import json
import random
from contextlib import AsyncExitStack
from typing import Any

from benchmarks.controller.fleet import KWOK
from benchmarks.controller.plane import Plane
from benchmarks.controller.processes import Process
from benchmarks.week.groups import ALIVE
from benchmarks.week.scenarios import BROKEN
from devcluster import tools

Object = dict[str, Any]

LEASE_SECONDS = 40  # a kubelet's default; renewed every quarter of it
PARALLEL = ("podPlayStageParallelism", "nodePlayStageParallelism", "nodeLeaseParallelism", "podsOnNodeSyncParallelism")
START_MS = (200, 1500)

RUNNING = """
{{ $now := Now }}
phase: Running
startTime: {{ $now | Quote }}
conditions:
- {type: Initialized, status: "True", lastTransitionTime: {{ $now | Quote }}}
- {type: ContainersReady, status: "True", lastTransitionTime: {{ $now | Quote }}}
- {type: Ready, status: "True", lastTransitionTime: {{ $now | Quote }}}
containerStatuses:
{{ range .spec.containers }}
- name: {{ .name | Quote }}
  image: {{ .image | Quote }}
  ready: true
  started: true
  restartCount: 0
  state: {running: {startedAt: {{ $now | Quote }}}}
{{ end }}
{{ $podIPs := PodIPsWith .spec.nodeName ( or .spec.hostNetwork false ) ( or .metadata.uid "" ) ( or .metadata.name "" ) ( or .metadata.namespace "" ) }}
{{ with $podIPs }}
podIP: {{ index . 0 | Quote }}
podIPs:
{{ range . }}
- ip: {{ . | Quote }}
{{ end }}
{{ end }}
"""  # noqa: E501 - a template's line cannot be broken


async def start_kubelets(plane: Plane, keep: AsyncExitStack, rng: random.Random) -> Process:
    """From now on machines with the label live."""
    kwok = await tools.ensure(KWOK) / "kwok"
    (plane.folder / "kwok.yaml").write_text("\n---\n".join(map(json.dumps, settings())))
    # Another range than that of a second run on this machine, most likely, as both answer on the metrics' port.
    network = f"127.{rng.randint(1, 254)}.0.0/16"
    process = await Process.start(
        "kwok",
        [kwok, f"--kubeconfig={plane.kubeconfig}", f"--config={plane.folder}/kwok.yaml", f"--cidr={network}",
         f"--node-lease-duration-seconds={LEASE_SECONDS}", f"--manage-nodes-with-label-selector={ALIVE}=yes"],
        plane.folder,
    )  # fmt: skip
    keep.push_async_callback(process.stop)
    return process


def settings() -> list[Object]:
    """kwok's configuration: how wide it works, and the stages of a pod's life."""
    starts: list[Object] = [
        {"key": ".metadata.deletionTimestamp", "operator": "DoesNotExist"},
        {"key": ".status.phase", "operator": "In", "values": ["Pending"]},
        {"key": f'.metadata.annotations["{BROKEN}"]', "operator": "DoesNotExist"},
    ]
    boots: list[Object] = [{"key": ".status.phase", "operator": "NotIn", "values": ["Running"]}]
    return [
        {
            "apiVersion": "config.kwok.x-k8s.io/v1alpha1",
            "kind": "KwokConfiguration",
            "options": dict.fromkeys(PARALLEL, 16),  # all of them: where a file has options, its defaults do not count
        },
        # Without any stage of machines, kwok looks at none.
        _stage("machine-boots", "Node", boots, (0, 0), {"statusTemplate": "phase: Running"}),
        _stage("pod-starts", "Pod", starts, START_MS, {"statusTemplate": RUNNING}),
    ]


def _stage(name: str, kind: str, matches: list[Object], between: tuple[int, int], then: Object) -> Object:
    delay = {"durationMilliseconds": between[0], "jitterDurationMilliseconds": between[1]}
    reference = {"apiGroup": "v1", "kind": kind}
    return {
        "apiVersion": "kwok.x-k8s.io/v1alpha1",
        "kind": "Stage",
        "metadata": {"name": name},
        "spec": {"resourceRef": reference, "selector": {"matchExpressions": matches}, "delay": delay, "next": then},
    }
