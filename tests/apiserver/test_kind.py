"""The kind ElasticJob on a real API server: what it refuses and in which words, and how it is to use with kubectl."""

import asyncio
import subprocess
from typing import Any

import pytest
import yaml

from devcluster import tools
from ebb.controller.served_kind import SCHEMA_PATH, lacking
from ebb.kube import ELASTIC_JOBS, Conflict, Invalid, KubeError
from tests.apiserver.place import Place, article

Object = dict[str, Any]

REFUSED: dict[str, tuple[Object, str]] = {
    "fewer workers than minReplicas": (
        {"replicas": 1, "low": 2},
        "spec.replicaSpecs.Worker.replicas is 1, below spec.minReplicas 2: ask for more workers or lower minReplicas.",
    ),
    "more workers than maxReplicas": (
        {"replicas": 5, "high": 4},
        "spec.replicaSpecs.Worker.replicas is 5, above spec.maxReplicas 4: ask for fewer workers or raise maxReplicas.",
    ),
    "bounds the wrong way round": (
        {"replicas": 3, "low": 4, "high": 2},
        "spec.minReplicas is 4, above spec.maxReplicas 2: swap them, or set both to the size that you want.",
    ),
    "no workers at all": ({"replicas": 0, "low": None}, "should be greater than or equal to 1"),
    "a number of workers that nobody said": ({"replicas": None, "low": None, "high": None}, "Worker.replicas"),
    "more workers than a status can name": ({"replicas": 1001, "high": None}, "should be less than or equal to 1000"),
    "no rendezvous": ({"rdzvEndpoint": None}, "spec.rdzvEndpoint"),
    "a fallback that nothing falls back from": (
        {"placement": {"capacity": "spot", "fallbackAfterSeconds": 60}},
        "spec.placement.fallbackAfterSeconds needs capacity spot-then-on-demand",
    ),
    "an unknown way to succeed": ({"successPolicy": "MostWorkers"}, 'supported values: "AnyWorker", "AllWorkers"'),
    "an unknown restart policy": ({"policy": "Sometimes"}, 'supported values: "Always", "OnFailure", "Never", "ExitCode"'),
    "an unknown clean pod policy": ({"cleanPodPolicy": "Most"}, 'supported values: "All", "Running", "None"'),
    "an empty rendezvous": ({"rdzvEndpoint": ""}, "spec.rdzvEndpoint"),
    "a budget that is none": ({"budget": {"maxUSD": 0}}, "spec.budget.maxUSD"),
    "a group that runs nothing": ({"group": {"name": "sweep", "maxParallel": 0}}, "spec.group.maxParallel"),
    "a group without a name": ({"group": {"name": "", "maxParallel": 1}}, "spec.group.name"),
    "a deadline that is no time": ({"deadline": "tomorrow"}, "spec.deadline"),
    "an unknown capacity": ({"placement": {"capacity": "cheap"}}, 'supported values: "spot", "on-demand"'),
    "a rule for every failure": (
        {"failurePolicy": {"rules": [{"action": "Ignore"}]}},
        "a rule of spec.failurePolicy has to say what it is for: give onExitCodes, onReasons or onMessage.",
    ),
    "a rule for a success": (
        {"failurePolicy": {"rules": [{"action": "Ignore", "onExitCodes": [0]}]}},
        "onExitCodes[0]",
    ),
    "a rule that does what nobody knows": (
        {"failurePolicy": {"rules": [{"action": "Retry", "onExitCodes": [1]}]}},
        'supported values: "RestartJob", "RestartWorker", "Ignore", "FailJob", "HoldJob"',
    ),
    "a program started again in place for what it cannot know": (
        {"failurePolicy": {"rules": [{"action": "RestartInPlace", "onReasons": ["OOMKilled"], "onExitCodes": [3]}]}},
        "RestartInPlace is done inside the worker, which knows no onReasons: give onExitCodes or onMessage.",
    ),
    "an unknown way of scaling": ({"scaling": "wild"}, 'supported values: "manual", "automatic"'),
}


STARTED_WITH: tuple[tuple[str, Object], ...] = (
    ("minReplicas", {"minReplicas": 2}),
    ("maxReplicas", {"maxReplicas": 8}),
    ("maxReplicas", {"maxReplicas": None}),
    ("rdzvEndpoint", {"rdzvEndpoint": "other:2379"}),
    ("nprocPerNode", {"nprocPerNode": 2}),
    (r"replicaSpecs\.Worker\.template", {"replicaSpecs": {"Worker": {"template": {"spec": {"nodeSelector": {"disk": "fast"}}}}}}),
    (r"replicaSpecs\.Worker\.template", {"replicaSpecs": {"Worker": {"template": {"metadata": {"labels": {"a": "b"}}}}}}),
    (
        r"replicaSpecs\.Worker\.template",
        {"replicaSpecs": {"Worker": {"template": {"spec": {"containers": [{"name": "elasticjob-worker", "image": "x:2"}]}}}}},
    ),
)


@pytest.mark.parametrize(("changes", "sentence"), REFUSED.values(), ids=REFUSED)
async def test_the_api_server_refuses(place: Place, changes: Object, sentence: str) -> None:
    assert sentence in await place.refusal(**changes)


@pytest.mark.parametrize("rule", [{"onExitCodes": [3], "times": 1}, {"onMessage": "DataLoader worker"}], ids=str)
async def test_a_program_may_start_again_in_place_for_what_it_knows(place: Place, rule: Object) -> None:
    assert await place.refusal(failurePolicy={"rules": [{"action": "RestartInPlace", **rule}]}) == ""


async def test_a_name_too_long_for_its_workers_is_refused_with_the_limit(place: Place) -> None:
    longest = 63 - len("-worker-9")
    assert await place.refusal("a" * longest, high=10) == ""
    assert "<name>-worker-<index> must have at most 63 characters" in await place.refusal("a" * longest, high=11)


@pytest.mark.parametrize("name", ["1st", "a.b"])
async def test_a_name_that_no_service_can_have_is_refused(place: Place, name: str) -> None:
    assert "metadata.name must begin with a letter" in await place.refusal(name)


async def test_what_workers_were_started_with_cannot_change_while_they_run(place: Place) -> None:
    job = await place.submit(replicas=2)
    await job.runs(2)
    for field, change in STARTED_WITH:
        said = rf"spec\.{field} cannot change while workers run, as they were started with it: set spec\.suspend to true first"
        with pytest.raises(Invalid, match=said):
            await job.patch(**change)
    await job.patch(replicaSpecs={"Worker": {"replicas": 3}}, budget={"maxUSD": 3})


async def test_a_job_without_workers_may_change_in_all_that_they_are_started_with(place: Place) -> None:
    job = await place.submit(replicas=2, suspend=True)
    for _, change in STARTED_WITH:
        await job.patch(**change)


async def test_who_manages_a_job_cannot_change(place: Place) -> None:
    job = await place.submit(replicas=1, managedBy="ebb.dev/elasticjob-controller")
    with pytest.raises(Invalid, match=r"spec.managedBy cannot change: create the job anew"):
        await job.patch(managedBy="kueue.x-k8s.io/multikueue")


async def test_scaling_beyond_the_bounds_is_refused(place: Place) -> None:
    job = await place.submit(replicas=2, low=2, high=4)
    with pytest.raises(Invalid, match=r"replicas is 5, above spec.maxReplicas 4"):
        await job.scale(5)
    with pytest.raises(Invalid, match=r"replicas is 1, below spec.minReplicas 2"):
        await job.scale(1)


async def test_users_do_not_write_status_through_the_spec(place: Place) -> None:
    job = await place.submit(replicas=1)
    await job.runs(1)
    await place.made.kube.patch(ELASTIC_JOBS, place.namespace, "digits", {"status": {"failures": 7}})
    await job.looked()
    assert job.status["failures"] == 0


async def test_server_side_apply_twice_changes_nothing_and_leaves_others_fields_alone(place: Place) -> None:
    kube = place.made.kube
    wanted = article("digits", place.namespace, replicas=2)
    await kube.apply(ELASTIC_JOBS, place.namespace, wanted, manager="people")
    job = place.job()
    await job.runs(2)
    await kube.patch(ELASTIC_JOBS, place.namespace, "digits", {"spec": {"suspend": True}})
    again = await kube.apply(ELASTIC_JOBS, place.namespace, wanted, manager="people")
    assert again["spec"]["suspend"] is True
    assert again["metadata"]["generation"] == 2


async def test_two_who_apply_the_same_field_are_told_of_each_other(place: Place) -> None:
    kube = place.made.kube
    await kube.apply(ELASTIC_JOBS, place.namespace, article("digits", place.namespace, replicas=2), manager="people")
    other = article("digits", place.namespace, replicas=3)
    with pytest.raises(Conflict, match="people"):
        await kube.apply(ELASTIC_JOBS, place.namespace, other, manager="others", force=False)


async def test_conditions_are_a_map_by_type_for_those_who_apply(place: Place) -> None:
    """Two parties that apply status own conditions, not the list."""
    kube = place.made.kube
    schema: Any = await kube.request(
        "GET", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/elasticjobs.elastic.pytorch.org"
    )
    conditions = schema["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]["conditions"]
    assert (conditions["x-kubernetes-list-type"], conditions["x-kubernetes-list-map-keys"]) == ("map", ["type"])


# --- kubectl --------------------------------------------------------------------------------------------------------------------


async def kubectl(place: Place, *arguments: str) -> str:
    """What it prints."""

    def run() -> str:
        command = [str(tools.main_ensure("kubernetes") / "kubectl"), f"--kubeconfig={place.made.processes.kubeconfig}"]
        done = subprocess.run(
            [*command, "-n", place.namespace, *arguments], capture_output=True, text=True, check=False, timeout=60
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return await asyncio.to_thread(run)


async def test_kubectl_get_shows_what_a_person_wants_to_know(place: Place) -> None:
    job = await place.submit(replicas=2)
    await job.runs(2)
    head, line = (await kubectl(place, "get", "elasticjobs")).splitlines()
    assert head.split() == ["NAME", "STATE", "WORKERS", "ZONE", "GPU", "STEP", "RECLAIMS", "AGE"]
    assert line.split()[:3] == ["digits", "Running", "2/2"]


async def test_kubectl_knows_the_short_name(place: Place) -> None:
    await place.submit(replicas=1)
    assert "digits" in await kubectl(place, "get", "ej", "-o", "name")


async def test_kubectl_scale_scales(place: Place) -> None:
    job = await place.submit(replicas=2)
    await job.runs(2)
    await kubectl(place, "scale", "elasticjob/digits", "--replicas=3")
    await job.runs(3)


@pytest.mark.parametrize(
    ("field", "words"),
    [
        ("spec.minReplicas", "Training runs with at least this many workers"),
        ("spec.replicaSpecs.Worker.restartPolicy", "What a failure of the program does"),
        ("spec.budget.maxUSD", "have cost more than this"),
        ("status.reclaims", "never counted against backoffLimit"),
    ],
)
async def test_kubectl_explain_explains(place: Place, field: str, words: str) -> None:
    assert words in " ".join((await kubectl(place, "explain", f"elasticjob.{field}")).split())


async def test_every_field_has_a_description(place: Place) -> None:
    crd: Any = await place.made.kube.request(
        "GET", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/elasticjobs.elastic.pytorch.org"
    )
    bare = list(_bare(crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"], ""))
    assert bare == []


async def test_the_controller_finds_in_the_servers_own_description_what_an_older_kind_lacks(place: Place) -> None:
    described = await place.made.kube.request("GET", SCHEMA_PATH)
    assert lacking(described) == []
    schemas = described["components"]["schemas"].values()
    kinds = ((item, kind["kind"]) for item in schemas for kind in item.get("x-kubernetes-group-version-kind") or ())
    (served,) = (item for item, kind in kinds if kind == "ElasticJob")  # there may be others, such as autoscaling's Scale
    status = served["properties"]["status"]["properties"]
    status["conditions"]["items"]["properties"]["type"]["enum"].remove("Stalled")
    del status["progress"]["properties"]["step"]
    assert lacking(described) == ["status.conditions[].type: Stalled", "status.progress.step"]


async def test_upstreams_job_file_is_taken_unchanged(place: Place) -> None:
    """As in the repository of pytorch/elastic: its fields, without any of ours."""
    text = """
    apiVersion: elastic.pytorch.org/v1alpha1
    kind: ElasticJob
    metadata: {name: classy-vision}
    spec:
      rdzvEndpoint: "etcd-service:2379"
      minReplicas: 1
      maxReplicas: 2
      replicaSpecs:
        Worker:
          replicas: 2
          restartPolicy: ExitCode
          template:
            apiVersion: v1
            kind: Pod
            spec:
              containers:
                - name: elasticjob-worker
                  image: torchelastic/examples:0.2.0
                  imagePullPolicy: Always
                  args: ["--nproc_per_node=1", "/workspace/examples/classy_vision/classy_train.py", "--config_file", "/a.json"]
    """
    item = yaml.safe_load(text)
    try:
        await place.made.kube.create(ELASTIC_JOBS, place.namespace, item)
    except KubeError as error:
        pytest.fail(str(error))
    job = place.job("classy-vision")
    await job.runs(2)
    assert (
        job.pods[0]["spec"]["containers"][0]["args"][-4:]
        == item["spec"]["replicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]["args"]
    )


def _bare(schema: Object, path: str) -> Any:
    for name, field in (schema.get("properties") or {}).items():
        if "description" not in field and path + name != "metadata":
            yield path + name
        yield from _bare(field.get("items", field), f"{path}{name}.")
