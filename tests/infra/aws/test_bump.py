"""Every pin beside the newest version of a fake index. It is a stack on AWS that has each kind of pin."""

from pathlib import Path
from typing import Any

import pytest

from infra import bump
from infra.account.records import Pattern
from infra.config import ROOT

FILES = {
    "pyproject.toml": 'aws = ["pulumi-aws==7.51.1", "boto3==1.44.5"]\n',
    "Makefile": "UV_VERSION := 0.13.9\n",
    "infra/clouds/aws/machines/in_cluster.py": 'IMAGE = "nvcr.io/nvidia/k8s-device-plugin:v0.20.0"\n',
    "infra/clouds/aws/settings.py": 'KARPENTER = "1.14.1"\n',
    "workloads/manifests/kustomization.yaml": "    newName: registry.k8s.io/etcd\n    newTag: 3.6.5-0\n",
    "Pulumi.dev.yaml": (
        "    cluster:\n      addOns:\n        coredns: v1.13.2-eksbuild.11\n"
        "    nodes:\n      releases:\n"
        "        AL2023_x86_64_NVIDIA: 1.35.6-20260714  # https://github.com/awslabs/amazon-eks-ami, driver 580\n"
        "    autoscaler:\n      # the minor is the cluster's\n      version: v1.35.0\n"
    ),
}
INDEX: dict[str, Any] = {
    "https://index.example/simple/pulumi-aws/": {"versions": ["7.9.0", "7.51.1", "7.60.0", "8.0.0a1"]},
    "https://index.example/simple/uv/": {"versions": ["0.13.9"]},
    "https://api.github.com/repos/NVIDIA/k8s-device-plugin/releases?per_page=100": [
        {"tag_name": "v0.21.0-rc.1", "prerelease": True}, {"tag_name": "v0.20.0", "prerelease": False},
    ],
    "https://api.github.com/repos/kubernetes/autoscaler/releases?per_page=100": [
        {"tag_name": "cluster-autoscaler-chart-9.59.0", "prerelease": False},
        {"tag_name": "cluster-autoscaler-1.35.2", "prerelease": False},
    ],
    "https://api.github.com/repos/aws/karpenter-provider-aws/releases?per_page=100": [
        {"tag_name": "v1.15.0", "prerelease": False},
    ],
    "https://api.github.com/repos/etcd-io/etcd/releases?per_page=100": [{"tag_name": "v3.6.6", "prerelease": False}],
    "https://api.github.com/repos/awslabs/amazon-eks-ami/releases?per_page=100": [{"tag_name": "v20260917", "prerelease": False}],
}  # fmt: skip


def fake(address: str) -> Any:
    if address not in INDEX:
        raise OSError(f"{address}: not found")
    return INDEX[address]


def test_each_pin_is_beside_the_newest_release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "https://index.example/simple/")
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert [row[:3] for row in bump.rows(tmp_path, fake)] == [
        ["pulumi-aws", "7.51.1", "7.60.0"],
        ["boto3", "1.44.5", "? https://index.example/simple/boto3/: not found"],
        ["uv", "0.13.9", "newest"],
        ["k8s-device-plugin", "v0.20.0", "newest"],
        ["etcd", "3.6.5", "3.6.6"],
        ["cluster-autoscaler", "v1.35.0", "1.35.2"],
        ["karpenter", "1.14.1", "1.15.0"],
        ["AL2023_x86_64_NVIDIA", "20260714", "20260917"],
        ["coredns", "v1.13.2-eksbuild.11", "? make preflight"],
    ]


@pytest.mark.parametrize("pattern", [*bump.patterns()], ids=lambda pattern: pattern.name or pattern.text)
def test_every_pattern_finds_a_pin_in_the_checkout(pattern: Pattern) -> None:
    assert [pin for pin in bump.pins(ROOT) if pin.pattern is pattern]
