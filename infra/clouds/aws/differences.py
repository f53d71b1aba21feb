"""Particulars of AWS, for docs/clouds.md (infra/page.py)."""

DIFFERENCES = {
    "cluster": "EKS, add-ons with pinned versions",
    "network": "a public and a private subnet per zone, NAT gateway, S3 endpoint",
    "node group": "launch template and managed node group in one zone, or a NodePool",
    "autoscaler": "cluster-autoscaler or Karpenter, run by Ebb",
    "GPU driver": "in the AMI; device plugin run by Ebb",
    "spot": "Spot node group, rebalanced by EKS",
    "notice": "120 s",
    "maximum machine age": "none; capacity-block by its reservation",
    "data and output": "EFS in all zones, or FSx for Lustre",
    "fast file system": "FSx for Lustre, filled from S3",
    "etcd's disk": "EBS gp3, nightly snapshots",
    "images": "ECR; CodeBuild or local Docker",
    "who reaches the API": "public ranges, or the VPC alone",
    "identities": "one IAM role that they take; group ebb:researchers",
    "what a destroy keeps": "EFS",
    "source of the mocks": "botocore's models and ForceNew of terraform-provider-aws",
}
