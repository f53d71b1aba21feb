"""The Pulumi program: see infra/program.py."""

from infra import program

program.run()
