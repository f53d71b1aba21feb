"""The Pulumi program: see infra/program.py."""

import gc

# A fifth of its processor time went into the search for garbage among the SDKs' classes; it lives for one update.
gc.disable()

from infra import program  # noqa: E402

program.run()
