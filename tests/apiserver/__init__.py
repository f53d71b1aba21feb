"""The controller on a real API server: plane.py and machines.py make a world, place.py speaks of jobs in it, test_*.py specify.

`pytest -v -m e2e tests/apiserver` reads as the controller's specification; stage.py, stories.py and faults.py do harm to it.
"""

import pytest

for _helper in ("faults", "kubelets", "machines", "place", "plane", "stories"):
    pytest.register_assert_rewrite(f"{__name__}.{_helper}")  # their asserts tell what they found, too
