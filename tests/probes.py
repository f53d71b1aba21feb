"""The time that a kubelet leaves the containers of a pod to start and to answer."""

from typing import Any

Object = dict[str, Any]
START_SECONDS = 300.0  # Python loads for more than a minute on a machine whose cores others use
ANSWER_SECONDS = 60.0


def impatient(pod: Object) -> list[str]:
    """Containers that a busy machine would have killed before they answer, and why."""
    return [f"{container['name']}: {why}" for container in pod["containers"] for why in _hasty(container)]


def _hasty(container: Object) -> list[str]:
    liveness, startup = container.get("livenessProbe"), container.get("startupProbe")
    if liveness is None:
        return []
    if startup is None:
        return ["it is killed while it starts"]
    questions = [{key: probe.get(key) for key in ("httpGet", "exec", "tcpSocket")} for probe in (startup, liveness)]
    found = {
        "it has too little time to start": _seconds(startup) < START_SECONDS,
        "it is killed for a few late answers": _seconds(liveness) < ANSWER_SECONDS,
        "it waits after it has started": "initialDelaySeconds" in liveness,
        "its two probes ask different things": questions[0] != questions[1],
    }
    return [why for why, so in found.items() if so]


def _seconds(probe: Object) -> float:
    """Until the kubelet acts: its defaults are a question every 10 s, and three misses."""
    return float(probe.get("periodSeconds", 10) * probe.get("failureThreshold", 3))
