"""The wheel of ebb-train has what its code reads: styles, scripts and pictures of the pages as well."""

import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_every_file_beside_the_code_is_in_the_wheel(tmp_path: Path) -> None:
    uv = Path(sys.executable).parent / "uv"
    subprocess.run([uv, "build", "--wheel", "--quiet", "--offline", "--out-dir", tmp_path], cwd=ROOT, check=True)
    [wheel] = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        names = set(packed.namelist())
    listed = subprocess.run(["git", "ls-files", "ebb"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    assert {"ebb/cli/ui/ui.js", "ebb/cli/ui/ui.css", "ebb/client/report/page.css"} <= set(listed)
    assert set(listed) - names == set()
