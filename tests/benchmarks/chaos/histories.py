"""A small history as a run writes it, in which all promises were kept: tests change one thing in it."""

import json
from typing import Any

Record = dict[str, Any]

BEGAN = 1000.0
SAMPLES, BATCH = 8, 4


def ledger(generation: int, *, resumed: int = 0, before: int = 0, steps: dict[int, list[int]]) -> str:
    """Of a rank that is alone."""
    header = {"generation": generation, "resumed_step": resumed, "resumed_generation": before, "rank": 0, "world_size": 1}
    header |= {"dataset_size": SAMPLES, "global_batch": BATCH, "epochs": 1}
    lines = [header, *({"step": step, "time": 0.0, "ids": ids} for step, ids in steps.items())]
    return "".join(json.dumps(line) + "\n" for line in lines)


def pod(at: float, uid: str, *, index: int = 0, node: str = "n1", phase: str = "Running", gone: bool = False) -> Record:
    """Of the first job; its address ends as its uid does."""
    facts = {"uid": uid, "name": f"one-worker-{index}", "job": "one", "index": index, "ip": f"10.0.0.{uid[-1]}"}
    return {"at": at, "what": "pod", **facts, "node": node, "phase": phase, "leaving": False, "gone": gone}


def status(at: float, state: str, *, job: str = "one", failures: int = 0, reclaims: int = 0) -> Record:
    facts = {"job": job, "uid": f"{job}-uid0-rest", "state": state, "reason": "why"}
    return {"at": at, "what": "status", **facts, "failures": failures, "reclaims": reclaims, "restarts": 0}


def commit(at: float, generation: int, step: int, *, revision: int) -> Record:
    value = json.dumps({"name": "any", "generation": generation, "step": step})
    return {"at": at, "what": "key", "key": "/ebb/checkpoints/abc", "value": value, "revision": revision}


def formed(at: float, number: int, *addresses: str, revision: int) -> Record:
    members = [{"id": address, "address": address, "processes": 1} for address in addresses]
    value = json.dumps({"number": number, "members": members, "store": ""})
    return {"at": at, "what": "key", "key": "/ebb/one-one-uid0/generation", "value": value, "revision": revision}


def kept() -> list[Record]:
    """One job of one worker whose machine dies after a step, and one whose program fails twice."""
    machines = [{"name": "n1", "usd_per_hour": 0.36, "booted_at": BEGAN + 10, "gone_at": BEGAN + 110},
                {"name": "n2", "usd_per_hour": 0.36, "booted_at": BEGAN + 120, "gone_at": BEGAN + 220}]  # fmt: skip
    cost = {
        "jobs": {"usd": 0.018},
        "idle": {"usd": 0.002},
        "unseen": {"usd": 0.0},
        "machines": {"usd": 0.03},
        "platform": {"usd": 0.01},
    }
    return [
        {"at": 0.0, "what": "begin", "schema": 1, "seed": 7, "seconds": 300, "plant": "", "only": [], "unix": BEGAN},
        {"at": 1.0, "what": "job", "name": "one", "uid": "one-uid0-rest", "workers": 1, "ends": "Succeeded", "backoff": 1},
        {"at": 1.0, "what": "job", "name": "bad", "uid": "bad-uid0-rest", "workers": 1, "ends": "Failed", "backoff": 1},
        pod(12.0, "p1", phase="Pending"),
        pod(13.0, "p1"),
        status(14.0, "Running"),
        formed(15.0, 1, "10.0.0.1", revision=2),
        commit(20.0, 1, 1, revision=3),
        status(50.0, "Failed", job="bad", failures=2),
        {"at": 51.0, "what": "crashes", "job": "bad", "times": 2},
        {"at": 110.0, "what": "action", "number": 0, "kind": "machine", "victim": "n1", "seconds": 0.0},
        {"at": 110.0, "what": "healed", "number": 0},
        pod(111.0, "p1", gone=True),
        status(112.0, "Restarting", reclaims=1),
        pod(121.0, "p2", node="n2"),
        formed(125.0, 2, "10.0.0.2", revision=4),
        commit(130.0, 2, 2, revision=5),
        status(200.0, "Succeeded", reclaims=1),
        {"at": 201.0, "what": "crashes", "job": "one", "times": 0},
        {"at": 201.0, "what": "file", "job": "one", "name": "ledger/g1-r0.jsonl",
         "text": ledger(1, steps={0: [0, 1, 2, 3], 1: [4, 5, 6, 7]})},
        {"at": 201.0, "what": "file", "job": "one", "name": "ledger/g2-r0.jsonl",
         "text": ledger(2, resumed=1, before=1, steps={1: [4, 5, 6, 7]})},
        {"at": 201.0, "what": "file", "job": "one", "name": "result.json", "text": json.dumps({"generation": 2})},
        {"at": 201.0, "what": "file", "job": "one", "name": "owner.json", "text": json.dumps({"id": "abc"})},
        {"at": 230.0, "what": "part", "name": "controller", "well": True},
        {"at": 231.0, "what": "bill", "at_unix": BEGAN + 231, "machines": machines, "cost": cost},
        {"at": 232.0, "what": "end"},
    ]  # fmt: skip


def find(records: list[Record], what: str, **facts: Any) -> Record:
    """The first of them, to be changed."""
    return next(one for one in records if one["what"] == what and all(one[key] == value for key, value in facts.items()))
