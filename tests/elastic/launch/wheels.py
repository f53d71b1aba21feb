"""Small wheels and archives, made by hand: what a job's code and its requirements.txt are in the tests."""

import gzip
import hashlib
import io
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path


def make_wheel(folder: Path, name: str, version: str = "1.0", *, needs: str = "", says: str = "hello") -> Path:
    """A pure wheel with one module, which has the word `SAYS`."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{version}-py3-none-any.whl"
    info = f"{name}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n" + (f"Requires-Dist: {needs}\n" if needs else "")
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr(f"{name}.py", f"SAYS = {says!r}\n")
        wheel.writestr(f"{info}/METADATA", metadata)
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: hand\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
    return path


def pack(path: Path, files: Mapping[str, str], *, links: Mapping[str, str] | None = None) -> str:
    """A .tar.gz; returns its sha256. Nothing is checked: tests pack what `ebb` refuses."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(text.encode())
            tar.addfile(member, io.BytesIO(text.encode()))
        for name, target in (links or {}).items():
            member = tarfile.TarInfo(name)
            member.type, member.linkname = tarfile.SYMTYPE, target
            tar.addfile(member)
    path.write_bytes(gzip.compress(packed.getvalue(), mtime=0))
    return hashlib.sha256(path.read_bytes()).hexdigest()
