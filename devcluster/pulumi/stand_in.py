"""The two words by which the launcher and the Kubernetes plugin's stand-in (testing/pulumi/kubernetes) know each other."""

OPT_IN = "EBB_PULUMI_STANDIN"  # environment variable; "1" is how the launcher asks for the stand-in
MARK = "__ebbStandIn"  # key of a resource's outputs in the state that the stand-in wrote; the __ hides it from programs
