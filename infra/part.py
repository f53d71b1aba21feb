"""A named group of resources: one line in the preview's tree, one thing to depend on."""

from collections.abc import Sequence

import pulumi


class Part(pulumi.ComponentResource):
    """`Part("mars", "network", providers=[mars])` has type ebb:mars:Network. Who depends on it depends on all its children so
    far."""

    def __init__(
        self,
        cloud: str,
        name: str,
        *,
        providers: Sequence[pulumi.ProviderResource] = (),
        depends_on: Sequence[pulumi.Resource] = (),
    ) -> None:
        kind = "".join(word.capitalize() for word in name.split("-"))
        super().__init__(
            f"ebb:{cloud}:{kind}", name, None, pulumi.ResourceOptions(providers=list(providers), depends_on=list(depends_on))
        )

    def child(self, *, depends_on: Sequence[pulumi.Resource] = (), **options: object) -> pulumi.ResourceOptions:
        """Options of a resource in the group; `options` as pulumi.ResourceOptions has them."""
        given = pulumi.ResourceOptions(**options)  # type: ignore[arg-type]
        return pulumi.ResourceOptions.merge(pulumi.ResourceOptions(parent=self, depends_on=list(depends_on)), given)
