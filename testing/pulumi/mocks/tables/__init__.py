"""The reviewed tables: every AWS type that the stack uses, by token.

Sources that comments of the rows name, read 2026-11:
"tf" is terraform-provider-aws v6.58.0, which pulumi-aws is built on, with the function or method read. It was read in
github.com/lonegunmanb/terraform-provider-aws-index, tag v6.58.0 of 2026-08-05 (commit 2f6e22c42759323d69500964ed1d284e5f4dea97),
which holds its source symbol by symbol. ForceNew and RequiresReplace of every attribute of every type here, nested ones too, were
taken from it by a script and compared with what the rows say; tests/testing/mocks/test_tables.py has the result written out.
CustomizeDiff and ModifyPlan were read by eye: conditions.py. That a change of region replaces: forceNewIfRegionChanges of
internal/provider/sdkv2, resourceForceNewIfRegionChangesInterceptor of internal/provider/framework.
"pulumi-aws" is its provider/resource_overrides.go at commit 015d343812852f40a045a28e7f6e04bca69548f3 (of major version 7), whole:
DeleteBeforeReplace stands at exactly the types here that say `delete_first`, and no ForceNew at any.

Not read: the newer terraform-provider-aws of the installed pulumi_aws 7.51.1 (which of them it is, the wheel does not tell) and
pulumi-aws' patches of it, but for an old one that adds defaultAddonsToRemoves (Optional, without ForceNew). v6.58.0 lacks
eks.Cluster kubeApiServerConfig, kubeControllerManagerConfig and kubeSchedulerConfig, dlm.LifecyclePolicy
policyDetails.parameters.excludeDataVolumeTags, and s3.Bucket serverSideEncryptionConfiguration.rule.blockedEncryptionTypes: for
these the rows say what follows from the API's model alone.
"""

from collections.abc import Mapping

from testing.pulumi.mocks.kind import AwsType
from testing.pulumi.mocks.tables import access, compute, eks, images, network, objects, storage

TYPES: Mapping[str, AwsType] = {
    row.token: row
    for rows in (network.ROWS, compute.ROWS, eks.ROWS, access.ROWS, storage.ROWS, objects.ROWS, images.ROWS)
    for row in rows
}
