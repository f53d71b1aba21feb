"""What a function declares, seen as the engine would see it: every registration whole, without an engine, a plugin or an account.

    world = declared(lambda: network.declare(...))
    world.one("Vpc").inputs["cidrBlock"]                    # by the last part of the type; a name too where there are several
    world.before(world.one("NodeGroup", "manager"))         # what exists before it, and goes after it on the way down
    world.returned                                          # what the function returned: outputs are awaited

Outputs that only the cloud computes come from ANSWERS, or from `answers` of the call: type -> function of (name, inputs). The
remote component pulumi_eks.Cluster has one child here, the aws:eks/cluster:Cluster that its output eksCluster refers to.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import pulumi
from pulumi.runtime import mocks
from pulumi.runtime.rpc import _special_resource_sig, _special_sig_key
from pulumi.runtime.settings import SETTINGS
from pulumi.runtime.stack import run_pulumi_func

REGION, ACCOUNT = "us-west-2", "111122223333"
EKS, EKS_CLUSTER = "eks:index:Cluster", "aws:eks/cluster:Cluster"

Values = dict[str, Any]
Answer = Callable[[str, Values], Values]


@dataclass(frozen=True, kw_only=True)
class Registered:
    """One resource as it was sent to the engine. `inputs` have the engine's names (camelCase); resources are named by key."""

    type: str
    name: str
    custom: bool = True
    inputs: Values = field(default_factory=dict)
    parent: str = ""
    dependencies: frozenset[str] = frozenset()
    provider: str = ""  # the key of the provider; empty means the default provider
    providers: Mapping[str, str] = field(default_factory=dict)  # of a component: package -> key
    protect: bool = False
    retain_on_delete: bool = False
    delete_before_replace: bool = False
    deleted_with: str = ""
    ignore_changes: tuple[str, ...] = ()
    create_timeout: str = ""  # as written, "30m"; empty means the provider's own

    @property
    def key(self) -> str:
        return f"{self.type}::{self.name}"

    @property
    def kind(self) -> str:
        return self.type.rsplit(":", 1)[1]


class Declared:
    """All that was registered, in order of arrival, and what the function returned."""

    def __init__(self, resources: Iterable[Registered], returned: Any) -> None:
        self.resources = list(resources)
        self.returned = returned
        self._by_key = {one.key: one for one in self.resources}
        assert len(self._by_key) == len(self.resources), "two resources have the same type and name: the engine refuses that"

    def all(self, kind: str) -> list[Registered]:
        """Those of a type, by its last part ("Subnet") or whole."""
        return [one for one in self.resources if kind in (one.kind, one.type)]

    def named(self, kind: str) -> dict[str, Registered]:
        return {one.name: one for one in self.all(kind)}

    def one(self, kind: str, name: str | None = None) -> Registered:
        found = [one for one in self.all(kind) if name in (None, one.name)]
        assert len(found) == 1, f"{kind} {name or ''}: {[one.name for one in found] or sorted(self._by_key)}"
        return found[0]

    def before(self, resource: Registered) -> set[str]:
        """Keys of all that must exist before it, as the engine reckons: its dependencies, parent and provider, theirs in turn,
        and the children of every component among its dependencies."""
        found: set[str] = set()
        todo = [resource.key]
        while todo:
            new = self._directly_before(self._by_key[todo.pop()]) - found
            found |= new
            todo += new
        return found

    def _directly_before(self, resource: Registered) -> set[str]:
        needs = {*resource.dependencies, resource.provider, resource.parent} & set(self._by_key)
        components = {key for key in resource.dependencies if key in self._by_key and not self._by_key[key].custom}
        return needs | {one.key for one in self.resources if one.parent in components and one.key != resource.key}


def declared(declare: Callable[[], Any], *, stack: str = "dev", answers: Mapping[str, Answer] | None = None) -> Declared:
    """Run a declaring function, as `up` would: every output is known. (Previews are tested on the engine.)"""
    monitor = Monitor({**ANSWERS, **(answers or {})})
    returned = asyncio.run(_run(declare, monitor, stack))
    return Declared(monitor.seen, returned)


async def _run(declare: Callable[[], Any], monitor: "Monitor", stack: str) -> Any:
    """In a loop and a context of its own, which take Pulumi's global state along when they end."""
    loops: list[asyncio.AbstractEventLoop] = []

    def own_loop() -> None:  # or the mocks make one in each thread, and never close it
        loops.append(asyncio.new_event_loop())
        asyncio.set_event_loop(loops[-1])

    _forget()  # what a function that raised began, and its loop ended after `finally` below
    threads = ThreadPoolExecutor(max_workers=4, initializer=own_loop)
    asyncio.get_running_loop().set_default_executor(threads)
    mocks.set_mocks(monitor.mocks, project="ebb", stack=stack, preview=False, monitor=monitor)
    SETTINGS.callbacks = _Hooks()
    returned: list[Any] = []
    try:
        await run_pulumi_func(lambda: returned.append(declare()))
        return await _awaited(returned[0])
    finally:
        _forget()
        threads.shutdown()
        for loop in loops:
            loop.close()


def _forget() -> None:
    """A function that raised leaves calls behind, for whoever declares next."""
    SETTINGS.rpc_manager.clear()
    SETTINGS.outputs.clear()
    SETTINGS.callbacks = None


class _Hooks:
    """What MockMonitor has no server for. Only an engine calls hooks: tests/infra/aws/test_engine.py."""

    def register_error_hook(self, hook: pulumi.ErrorHook) -> None:
        """Take it, and call it never."""


async def _awaited(value: Any) -> Any:
    """Plain data with its outputs resolved. Anything else, e.g. a record, is returned as it is."""
    if isinstance(value, pulumi.Output | dict | list | tuple):
        return await pulumi.Output.from_input(value).future()
    return value


class _Answers(mocks.Mocks):
    def __init__(self, answers: Mapping[str, Answer]) -> None:
        self._answers = answers

    def new_resource(self, args: mocks.MockResourceArgs) -> tuple[str | None, Values]:
        answer = self._answers.get(args.typ)
        computed = answer(args.name, args.inputs) if answer else {}
        return f"{args.typ.rsplit(':', 1)[1]}-{args.name}", {**_usual(args), **args.inputs, **computed}

    def call(self, args: mocks.MockCallArgs) -> tuple[Values, list[tuple[str, str]] | None]:
        answer = self._answers.get(args.token)
        assert answer, f"{args.token}{args.args}: nothing is asked of a cloud while resources are declared"
        return answer("", args.args), []


def _usual(args: mocks.MockResourceArgs) -> Values:
    """What nearly every resource of AWS has."""
    if not args.typ.startswith("aws:"):
        return {}
    service, kind = args.typ.removeprefix("aws:").split("/")[0], args.typ.rsplit(":", 1)[1]
    arn = f"arn:aws:{service}:{REGION}:{ACCOUNT}:{kind[0].lower()}{kind[1:]}/{args.name}"
    return {"arn": arn, "name": args.name, "tagsAll": args.inputs.get("tags", {})}


class Monitor(mocks.MockMonitor):
    """Keeps every request whole; MockMonitor alone shows only names and inputs."""

    def __init__(self, answers: Mapping[str, Answer]) -> None:
        super().__init__(_Answers(answers))
        self.seen: list[Registered] = []

    def RegisterResource(self, request: Any) -> Any:
        if request.type == "pulumi:pulumi:Stack":
            return super().RegisterResource(request)  # type: ignore[no-untyped-call]
        _name_references(request.object)
        resource = self._with_providers(_registered(request))
        self.seen.append(resource)
        response = super().RegisterResource(request)  # type: ignore[no-untyped-call]
        if request.type == EKS:
            self._add_child(resource, response)
        return response

    def _with_providers(self, resource: Registered) -> Registered:
        """A component in a component has the outer one's providers too: the engine adds them."""
        outer = next((one for one in self.seen if one.key == resource.parent), None)
        if outer is None or resource.custom:
            return resource
        return replace(resource, providers={**outer.providers, **resource.providers})

    def _add_child(self, component: Registered, response: Any) -> None:
        """The cluster proper, as the component declares it in its plugin."""
        name, inputs = f"{component.name}-eksCluster", component.inputs
        urn = self.make_urn(response.urn, EKS_CLUSTER, name)
        state = {**inputs, **eks_cluster(str(inputs.get("name", component.name)), inputs)}
        provider = component.providers.get("aws", "")
        self.resources[urn] = mocks.MockMonitor.ResourceRegistration(urn, state["name"], state)
        self.seen.append(Registered(type=EKS_CLUSTER, name=name, inputs=inputs, parent=component.key, provider=provider))
        reference = {_special_sig_key: _special_resource_sig, "urn": urn, "id": state["name"]}
        response.object.update({"eksCluster": reference})


def _name_references(inputs: Any) -> None:
    """A resource that is given whole, as components take it, becomes its key: the mocks would make a resource of it anew."""
    for name, value in inputs.items():
        if isinstance(value, Mapping) and _special_sig_key in value and value[_special_sig_key] == _special_resource_sig:
            inputs[name] = _key(value["urn"])


def _registered(request: Any) -> Registered:
    return Registered(
        type=request.type,
        name=request.name,
        custom=request.custom,
        inputs=pulumi.runtime.rpc.deserialize_properties(request.object),
        parent=_key(request.parent),
        dependencies=frozenset(_key(urn) for urn in request.dependencies),
        provider=_key(request.provider.rpartition("::")[0]),
        providers={package: _key(provider.rpartition("::")[0]) for package, provider in request.providers.items()},
        protect=request.protect,
        retain_on_delete=request.retainOnDelete,
        delete_before_replace=request.deleteBeforeReplace,
        deleted_with=_key(request.deletedWith),
        ignore_changes=tuple(request.ignoreChanges),
        create_timeout=request.customTimeouts.create,
    )


def _key(urn: str) -> str:
    """urn:pulumi:stack::project::parent's types$type::name -> type::name"""
    if not urn:
        return ""
    types, name = urn.split("::", 3)[2:]
    return "" if types == "pulumi:pulumi:Stack" else f"{types.rpartition('$')[2]}::{name}"


def eks_cluster(name: str, inputs: Values) -> Values:
    """What EKS computes of a cluster."""
    return {
        "name": name,
        "arn": f"arn:aws:eks:{REGION}:{ACCOUNT}:cluster/{name}",
        "endpoint": f"https://0123456789ABCDEF.gr7.{REGION}.eks.amazonaws.com",
        "certificateAuthority": {"data": "Q0E="},
        "vpcConfig": {"clusterSecurityGroupId": "sg-cluster", "vpcId": inputs.get("vpcId")},
        "platformVersion": "eks.1",
        "status": "ACTIVE",
    }


ANSWERS: Mapping[str, Answer] = {
    EKS_CLUSTER: eks_cluster,
    "aws:ec2/launchTemplate:LaunchTemplate": lambda name, inputs: {"latestVersion": 1},
    "aws:eks/nodeGroup:NodeGroup": lambda name, inputs: {"resources": [{"autoscalingGroups": [{"name": f"eks-{name}"}]}]},
    "aws:ec2/vpc:Vpc": lambda name, inputs: {"defaultSecurityGroupId": "sg-default", "mainRouteTableId": "rtb-main"},
    "aws:iam/role:Role": lambda name, inputs: {"arn": f"arn:aws:iam::{ACCOUNT}:role/{name}"},
    "aws:iam/policy:Policy": lambda name, inputs: {"arn": f"arn:aws:iam::{ACCOUNT}:policy/{name}"},
    "aws:s3/bucket:Bucket": lambda name, inputs: {"arn": f"arn:aws:s3:::{name}", "bucket": name},
    "aws:eks/podIdentityAssociation:PodIdentityAssociation": lambda name, inputs: {"associationId": f"a-{name}"},
    "aws:efs/mountTarget:MountTarget": lambda name, inputs: {
        "dnsName": f"{inputs.get('fileSystemId')}.efs.{REGION}.amazonaws.com"
    },
    "aws:efs/fileSystem:FileSystem": lambda name, inputs: {"dnsName": f"fs-{name}.efs.{REGION}.amazonaws.com"},
    "aws:fsx/lustreFileSystem:LustreFileSystem": lambda name, inputs: {
        "dnsName": f"fs-{name}.fsx.{REGION}.amazonaws.com",
        "mountName": "abcdefgh",
    },
    "aws:sqs/queue:Queue": lambda name, inputs: {
        "url": f"https://sqs.{REGION}.amazonaws.com/{ACCOUNT}/{inputs.get('name', name)}"
    },
    "aws:ecr/repository:Repository": lambda name, inputs: {
        "repositoryUrl": f"{ACCOUNT}.dkr.ecr.{REGION}.amazonaws.com/{inputs.get('name', name)}",
        "registryId": ACCOUNT,
    },
}
