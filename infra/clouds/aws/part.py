"""A part of a stack on AWS."""

from collections.abc import Sequence

import pulumi

from infra import part


class Part(part.Part):
    """`Part("network", providers=[aws])` has type ebb:aws:Network."""

    def __init__(
        self, name: str, *, providers: Sequence[pulumi.ProviderResource] = (), depends_on: Sequence[pulumi.Resource] = ()
    ) -> None:
        super().__init__("aws", name, providers=providers, depends_on=depends_on)
