"""Attempts of pods to break out of their place, and the rule that stops each: the table of `make prove-security`.

An attempt is one question from one pod. It opens exactly when all of its rules are away: any other outcome is a rule that
does nothing, or one that does another's work. `ALLOWED` is what jobs need, and has to work whatever rules are there.
"""

import json
import textwrap
from dataclasses import dataclass

SYSTEM, JOBS, RED, BLUE, ELSEWHERE, KUBERNETES = (
    "ebb-system", "elastic-job", "ebb-team-red", "ebb-team-blue", "default", "kube-system",
)  # fmt: skip
PORT = 9999  # on which the pods of this test listen, by TCP and UDP
NODE_PORT = 30999
ETCD, ETCD_METRICS, CONTROLLER_METRICS, KUBELET = 2379, 2381, 8080, 10250
METADATA, AGENT = "169.254.169.254", "169.254.170.23"  # as in clouds; the second is EKS Pod Identity's

# Of these pods it is asked.
WORKER, OTHER, PLAIN, GATEWAY, STRANGER, PLATFORM = (
    "a worker of team red",
    "a worker of team blue",
    "a worker without a team",
    "red's gateway, taken over",
    "a pod of somebody else",
    "the controller",
)


def policy(namespace: str, name: str) -> str:
    return f"NetworkPolicy {namespace}/{name}"


PLATFORM_CLOSED = policy(SYSTEM, "platform")
ETCD_CLOSED, RED_ETCD, BLUE_ETCD = (
    frozenset({PLATFORM_CLOSED, policy(SYSTEM, name)}) for name in ("etcd", "etcd-team-red", "etcd-team-blue")
)
RED_JOBS, BLUE_JOBS, PLAIN_JOBS = (frozenset({policy(one, "jobs")}) for one in (RED, BLUE, JOBS))
RED_GATEWAY, BLUE_GATEWAY, PLAIN_GATEWAY = (frozenset({policy(one, "gateway")}) for one in (RED, BLUE, JOBS))
CONTROLLER = frozenset({PLATFORM_CLOSED})
NO_RIGHTS = frozenset({"no right of the account"})
NOBODY = frozenset({"no right of who says no name"})
RIGHTS = NO_RIGHTS | NOBODY


@dataclass(frozen=True)
class Attempt:
    """`ask` is for PROGRAM: ("tcp", host, port), ("udp", host, port) or ("http", method, url, token?, body). Words with a `$` are
    filled in by the test: addresses are known when pods run."""

    name: str
    by: str
    ask: tuple[object, ...]
    rules: frozenset[str]


def tcp(host: str, port: int) -> tuple[object, ...]:
    return "tcp", host, port


def api(method: str, path: str, body: str = "", *, token: bool = True) -> tuple[object, ...]:
    return "http", method, f"$api{path}", token, body


def pod_in(namespace: str) -> str:
    spec = {"containers": [{"name": "one", "image": "example.org/one"}]}
    return json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one", "namespace": namespace}, "spec": spec})


RBAC = "rbac.authorization.k8s.io"


def all_rights() -> str:
    role = {"apiGroup": RBAC, "kind": "ClusterRole", "name": "cluster-admin"}
    subject = {"kind": "ServiceAccount", "namespace": RED, "name": "default"}
    binding = {"apiVersion": f"{RBAC}/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "mine"}}
    return json.dumps({**binding, "roleRef": role, "subjects": [subject]})


SECRETS = "/api/v1/namespaces/{}/secrets"
BLUES_JOB = f"/apis/elastic.pytorch.org/v1alpha1/namespaces/{BLUE}/elasticjobs/victim"

ATTEMPTS = (
    # etcd
    Attempt("the etcd of jobs without a team, by its Service", WORKER, tcp(f"etcd.{SYSTEM}", ETCD), ETCD_CLOSED),
    Attempt("the same by the address of its pod", WORKER, tcp("$etcd", ETCD), ETCD_CLOSED),
    Attempt("its metrics", WORKER, tcp("$etcd", ETCD_METRICS), ETCD_CLOSED),
    Attempt("its metrics", PLAIN, tcp("$etcd", ETCD_METRICS), ETCD_CLOSED),
    Attempt("the same etcd", STRANGER, tcp(f"etcd.{SYSTEM}", ETCD), ETCD_CLOSED),
    Attempt("blue's etcd, by its Service", WORKER, tcp(f"etcd-team-blue.{SYSTEM}", ETCD), BLUE_ETCD),
    Attempt("the same by the address of its pod", WORKER, tcp("$etcd_blue", ETCD), BLUE_ETCD),
    Attempt("blue's etcd", PLAIN, tcp(f"etcd-team-blue.{SYSTEM}", ETCD), BLUE_ETCD),
    Attempt("red's etcd", STRANGER, tcp(f"etcd-team-red.{SYSTEM}", ETCD), RED_ETCD),
    Attempt("the metrics of red's own etcd", WORKER, tcp("$etcd_red", ETCD_METRICS), RED_ETCD),
    # the controller
    Attempt("the controller's port", WORKER, tcp("$controller", CONTROLLER_METRICS), CONTROLLER),
    Attempt("the controller's port", PLAIN, tcp("$controller", CONTROLLER_METRICS), CONTROLLER),
    Attempt("the controller's port", STRANGER, tcp("$controller", CONTROLLER_METRICS), CONTROLLER),
    # other teams and namespaces
    Attempt("a port of blue's worker, by address", WORKER, tcp("$blue", PORT), BLUE_JOBS),
    Attempt("the same by name", WORKER, tcp("$blue_name", PORT), BLUE_JOBS),
    Attempt("the same by UDP", WORKER, ("udp", "$blue", PORT), BLUE_JOBS),
    Attempt("a pod of blue on the worker's own machine", WORKER, tcp("$blue_beside", PORT), BLUE_JOBS),
    Attempt("blue's worker, by a Service of red's that names its address", WORKER, tcp(f"detour.{RED}", PORT), BLUE_JOBS),
    Attempt("blue's worker", PLAIN, tcp("$blue", PORT), BLUE_JOBS),
    Attempt("blue's worker", STRANGER, tcp("$blue", PORT), BLUE_JOBS),
    Attempt("red's worker", OTHER, tcp("$red", PORT), RED_JOBS),
    Attempt("red's worker", STRANGER, tcp("$red", PORT), RED_JOBS),
    Attempt("a worker without a team", WORKER, tcp("$plain", PORT), PLAIN_JOBS),
    # node ports: somebody else's Service for a pod of blue
    Attempt("blue's worker, by a node port of the own machine", WORKER, tcp("$machine", NODE_PORT), BLUE_JOBS),
    Attempt("the same by a third machine, which sends it on as its own", WORKER, tcp("$other_machine", NODE_PORT), BLUE_JOBS),
    Attempt("blue's worker, by a node port", STRANGER, tcp("$machine", NODE_PORT), BLUE_JOBS),
    # gateways, as if they listened
    Attempt("red's gateway", WORKER, tcp("$gateway", PORT), RED_GATEWAY),
    Attempt("blue's gateway", WORKER, tcp("$gateway_blue", PORT), BLUE_GATEWAY),
    Attempt("the gateway of jobs without a team", PLAIN, tcp("$gateway_plain", PORT), PLAIN_GATEWAY),
    Attempt("red's worker", GATEWAY, tcp("$red", PORT), RED_GATEWAY),
    Attempt("red's etcd", GATEWAY, tcp("$etcd_red", ETCD), RED_GATEWAY),
    Attempt("the API server's port", GATEWAY, ("tcp", "$api_host", "$api_port"), RED_GATEWAY),
    Attempt("the kubelet's port of another machine", GATEWAY, tcp("$machine", KUBELET), RED_GATEWAY),
    Attempt("that of its own", GATEWAY, tcp("$manager", KUBELET), RED_GATEWAY),
    # the machine's identity
    Attempt("the metadata service", WORKER, tcp(METADATA, 80), RED_JOBS),
    Attempt("the identity agent's address", WORKER, tcp(AGENT, 80), RED_JOBS),
    Attempt("the metadata service", PLAIN, tcp(METADATA, 80), PLAIN_JOBS),
    Attempt("the metadata service", GATEWAY, tcp(METADATA, 80), RED_GATEWAY),
    # the API server, with a token that the job has asked for
    Attempt("secrets of the own team", WORKER, api("GET", SECRETS.format(RED)), NO_RIGHTS),
    Attempt("secrets of the platform", WORKER, api("GET", SECRETS.format(SYSTEM)), NO_RIGHTS),
    Attempt("blue's pods", WORKER, api("GET", f"/api/v1/namespaces/{BLUE}/pods"), NO_RIGHTS),
    Attempt("all nodes", WORKER, api("GET", "/api/v1/nodes"), NO_RIGHTS),
    Attempt("all rights for itself", WORKER,
            api("POST", f"/apis/{RBAC}/v1/clusterrolebindings?dryRun=All", all_rights()), NO_RIGHTS),
    Attempt("deletion of blue's job", WORKER, api("DELETE", f"{BLUES_JOB}?dryRun=All"), NO_RIGHTS),
    Attempt("a pod in kube-system", WORKER,
            api("POST", f"/api/v1/namespaces/{KUBERNETES}/pods?dryRun=All", pod_in(KUBERNETES)), NO_RIGHTS),
    Attempt("removal of a network policy", WORKER,
            api("DELETE", f"/apis/networking.k8s.io/v1/namespaces/{RED}/networkpolicies/jobs?dryRun=All"), NO_RIGHTS),
    Attempt("secrets, without a token", WORKER, api("GET", SECRETS.format(RED), token=False), NOBODY),
    Attempt("secrets, without a token", STRANGER, api("GET", SECRETS.format(SYSTEM), token=False), NOBODY),
    # the kubelet, which asks the API server who may do what
    Attempt("the pods of its machine's kubelet", WORKER, ("http", "GET", "https://$machine:10250/pods", True, ""), NO_RIGHTS),
    Attempt("logs of another machine's kubelet", WORKER,
            ("http", "GET", "https://$other_machine:10250/metrics", True, ""), NO_RIGHTS),
)  # fmt: skip

ALLOWED = (
    Attempt("red's own etcd", WORKER, tcp(f"etcd-team-red.{SYSTEM}", ETCD), frozenset()),
    Attempt("the etcd of jobs without a team", PLAIN, tcp(f"etcd-service.{JOBS}", ETCD), frozenset()),
    Attempt("a worker of red", WORKER, tcp("$red_too", PORT), frozenset()),
    Attempt("the API server's port, where it has no right", WORKER, ("tcp", "$api_host", "$api_port"), frozenset()),
    Attempt("red's worker, for its metrics", PLATFORM, tcp("$red", PORT), frozenset()),
    Attempt("blue's etcd", OTHER, tcp(f"etcd-team-blue.{SYSTEM}", ETCD), frozenset()),
)

OPEN = "open"
# Answers every question with "open", a status, or why not. Names are looked up with the pod's own resolver.
PROGRAM = textwrap.dedent("""
    import concurrent.futures, json, pathlib, socket, ssl, sys, urllib.error, urllib.request
    TOKEN = pathlib.Path("/var/run/secrets/kubernetes.io/serviceaccount/token")
    SECONDS = 4

    def http(method, url, token, body):
        headers = {"Content-Type": "application/json"}
        if token:
            headers["Authorization"] = "Bearer " + TOKEN.read_text()
        data = body.encode() or None
        request = urllib.request.Request(url, data=data, method=method, headers=headers)
        context = ssl._create_unverified_context()
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context))
        try:
            with opener.open(request, timeout=SECONDS):
                return "open"
        except urllib.error.HTTPError as error:
            return str(error.code)
        except urllib.error.URLError as error:
            raise error.reason

    def dial(kind, host, port):
        stream = kind == "tcp"
        with socket.socket(type=socket.SOCK_STREAM if stream else socket.SOCK_DGRAM) as made:
            made.settimeout(SECONDS)
            made.connect((host, int(port)))
            if not stream:
                made.send(b"?")
                made.recv(1)
        return "open"

    def answer(ask):
        try:
            return http(*ask[1:]) if ask[0] == "http" else dial(*ask)
        except OSError as error:
            return f"{type(error).__name__}: {error}"

    asked = json.loads(sys.argv[1])
    with concurrent.futures.ThreadPoolExecutor(len(asked)) as pool:
        print(json.dumps(list(pool.map(answer, asked))))
""")
# Answers by TCP and UDP, until the pod ends.
LISTENER = textwrap.dedent(f"""
    import signal, socket, threading
    signal.signal(signal.SIGTERM, lambda *_: __import__("os")._exit(0))
    datagrams, stream = socket.socket(type=socket.SOCK_DGRAM), socket.create_server(("", {PORT}))
    datagrams.bind(("", {PORT}))

    def echo():
        while True:
            _, sender = datagrams.recvfrom(1)
            datagrams.sendto(b"!", sender)

    threading.Thread(target=echo, daemon=True).start()
    while True:
        stream.accept()[0].close()
""")
