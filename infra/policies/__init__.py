"""The policy pack: rules that every resource of a stack has to keep, judged by Pulumi's engine before anything is made.

    pulumi preview --policy-pack infra/policies

rules.py has the records and cluster.py the rules of what is made in Kubernetes; those of a cloud are in its own folder
(infra/clouds/<cloud>/policies.py, which Cloud.rules gives out). __main__.py is the pack, and alone knows pulumi_policy.
"""
