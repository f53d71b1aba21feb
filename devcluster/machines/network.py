"""The devcluster's network: a namespace with a bridge that is switch and router, a veth to the host, one namespace per machine.

    host --- <link> === uplink -- bridge (ebb.<box>: control plane, router) -- m<index> === eth0 (ebb.<box>.<machine>) -- pods

The control plane lives in the namespace too, so no port of the host is used and boxes cannot clash. The host forwards nothing
and its firewall sees only its own connections. All functions can be repeated; machines reach each other and the host, nothing
else.
"""

import json
from pathlib import Path

from devcluster.commands import run
from devcluster.settings import Box

NETNS = Path("/run/netns")


async def set_up(box: Box) -> None:
    """The namespace with its bridge, and the host's way in. Leaves what is right alone and makes the rest anew."""
    if not await _has_address("bridge", f"{box.address}", netns=box.netns):
        await remove_namespace(box.netns)
        await run("ip", "netns", "add", box.netns)
        await _forward(box.netns)
        await _batch(box.netns, [
            "link set lo up",
            f"link add bridge address {mac(box.slot, 255)} type bridge",
            f"addr add {box.address}/24 dev bridge",
            "link set bridge up",
        ])  # fmt: skip
    if not await _has_address(box.link, f"{box.host_address}") or not await _has_link("uplink", box.netns):
        await remove_link(box.link)
        await remove_link("uplink", box.netns)
        await run("ip", "link", "add", box.link, "type", "veth", "peer", "name", "uplink", "netns", box.netns)
        await _batch(box.netns, ["link set uplink master bridge", "link set uplink up"])
        await _batch("", [f"link set {box.link} up", f"addr add {box.host_address}/24 dev {box.link}"])
    await _batch("", [f"route replace {box.pod_network} via {box.address} dev {box.link}"])


async def attach(box: Box, machine: str, index: int) -> None:
    """The machine's namespace, joined to the bridge, with addresses that derive from its index."""
    netns, port, address = box.machine_netns(machine), f"m{index}", box.machine_address(index)
    await detach(box, machine, index)
    await run("ip", "netns", "add", netns)
    # The hardware address derives from the index: after an index is used again nobody holds a stale neighbour entry.
    await run(
        "ip",
        "-n",
        box.netns,
        "link",
        "add",
        port,
        "type",
        "veth",
        "peer",
        "name",
        "eth0",
        "address",
        mac(box.slot, index),
        "netns",
        netns,
    )
    await _batch(box.netns, [
        f"link set {port} master bridge", f"link set {port} up", f"route replace {box.machine_pods(index)} via {address}",
    ])  # fmt: skip
    await _batch(netns, [
        "link set lo up", f"addr add {address}/24 dev eth0", "link set eth0 up", f"route add default via {box.address}",
    ])  # fmt: skip
    await _forward(netns)


async def detach(box: Box, machine: str, index: int) -> None:
    """The machine's namespace, its port and its route are gone. Its processes must be dead."""
    await remove_link(f"m{index}", box.netns)
    if exists(box.netns):
        routes = await run("ip", "-n", box.netns, "route", "show", str(box.machine_pods(index)))
        if routes.strip():
            await run("ip", "-n", box.netns, "route", "del", str(box.machine_pods(index)))
    await remove_namespace(box.machine_netns(machine))


async def filter_packets(box: Box, machine: str, rules: str) -> None:
    """Replace nftables tables of the machine by those of a text, in one step. Raises CommandError."""
    await run("nsenter", f"--net={NETNS / box.machine_netns(machine)}", "--", "nft", "--file", "-", stdin=rules)


async def remove_namespace(netns: str) -> None:
    if (NETNS / netns).exists():
        # A kill between making the file and mounting on it leaves a plain file, which `ip netns del` removes with a complaint.
        await run("sh", "-c", 'ip netns del "$1" 2>/dev/null; rm -f "/run/netns/$1"', "remove", netns)


async def remove_link(link: str, netns: str = "") -> None:
    if (not netns or exists(netns)) and await _has_link(link, netns):
        await run("ip", *_in(netns), "link", "del", link)


def exists(netns: str) -> bool:
    return any(line.split()[4] == str(NETNS / netns) for line in Path("/proc/self/mountinfo").read_text().splitlines())


def namespaces(box: Box) -> list[str]:
    """Names of the devcluster's namespaces that are there, its machines' included."""
    names = [path.name for path in NETNS.iterdir()] if NETNS.exists() else []
    return sorted(name for name in names if name == box.netns or name.startswith(f"{box.netns}."))


def mac(slot: int, index: int) -> str:
    """A locally administered hardware address."""
    return f"02:eb:bb:00:{slot:02x}:{index:02x}"


async def _has_link(link: str, netns: str = "") -> bool:
    return any(entry["ifname"] == link for entry in json.loads(await run("ip", *_in(netns), "-j", "link", "show") or "[]"))


async def _has_address(link: str, address: str, netns: str = "") -> bool:
    if netns and not exists(netns):
        return False
    found = json.loads(await run("ip", *_in(netns), "-j", "-4", "addr", "show") or "[]")
    return any(entry.get("ifname") == link and address in [info["local"] for info in entry["addr_info"]] for entry in found)


async def _batch(netns: str, commands: list[str]) -> None:
    await run("ip", *_in(netns), "-batch", "-", stdin="\n".join(commands) + "\n")


async def _forward(netns: str) -> None:
    # send_redirects off: the router sends packets out where they came in, which is meant. No limit for its answers, or whoever is
    # refused by a network policy (cloud/network_policies.py) a tenth time would wait for one.
    settings = {"ip_forward": 1, "conf/all/send_redirects": 0, "conf/default/send_redirects": 0, "icmp_ratelimit": 0}
    script = "; ".join(f"echo {value} > /proc/sys/net/ipv4/{key}" for key, value in settings.items())
    await run("nsenter", f"--net={NETNS / netns}", "--", "sh", "-ec", script)


def _in(netns: str) -> list[str]:
    return ["-n", netns] if netns else []
