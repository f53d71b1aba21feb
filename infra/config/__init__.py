"""The settings of a stack: one typed, frozen model of Pulumi.<stack>.yaml, with all its problems reported at once.

    stack = config.load()                  # in the Pulumi program; alone touches pulumi.Config
    stack = config.read("dev")             # other programs: from the stack's file, without the engine
    stack = config.parse(values, root)     # everything else: `values` is the ebb: section as plain data

The comments in Pulumi.dev.yaml and Pulumi.local.yaml are the user's reference, Pulumi.schema.json gives editors the same; both
are held to the model (model.py, and infra/clouds/<cloud> for the clouds' own sections). Nothing here declares a resource.

    ConfigError      the stack's file cannot be used; the text lists every problem as key, value, what is allowed, the fix
"""

from infra.config.model import Dataset, InstanceTypeSettings, Manager, Name, NodeGroupSettings, Stack, Storage, Trainer
from infra.config.reader import load, parse, read
from infra.config.section import NAMESPACE, ROOT, ConfigError, Form, OneOf, Problem, Section, choice

__all__ = [
    "NAMESPACE",
    "ROOT",
    "ConfigError",
    "Dataset",
    "Form",
    "InstanceTypeSettings",
    "Manager",
    "Name",
    "NodeGroupSettings",
    "OneOf",
    "Problem",
    "Section",
    "Stack",
    "Storage",
    "Trainer",
    "choice",
    "load",
    "parse",
    "read",
]
