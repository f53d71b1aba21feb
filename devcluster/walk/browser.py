"""A page as a person sees it: pictures of it by a Chromium without a window, if this machine has one.

It looks for $EBB_BROWSER, then for the names under which distributions have it. A walk without one has no pictures.
"""

import os
import shutil
import tempfile
from pathlib import Path

from devcluster.commands import run

NAMES = ("chromium", "chromium-headless-shell", "chromium-browser", "google-chrome", "google-chrome-stable")
SCHEMES = {"light": 1, "dark": 0}  # Chromium's own numbers of them


def find() -> str | None:
    """The program, or None."""
    named = os.environ.get("EBB_BROWSER")
    return next((found for name in ((named,) if named else NAMES) if (found := shutil.which(name))), None)


async def picture(browser: str, page: Path, out: Path, *, scheme: str, width: int = 1280, height: int = 1650) -> None:
    """Write a PNG of the upper part of a page. Raises CommandError."""
    with tempfile.TemporaryDirectory(prefix="ebb-browser-") as profile:
        await run(
            browser,
            "--headless",
            "--no-sandbox",  # it shows a file of ours, and root, who owns the box, may not have one
            "--disable-gpu",
            "--hide-scrollbars",
            f"--user-data-dir={profile}",
            f"--blink-settings=preferredColorScheme={SCHEMES[scheme]}",
            f"--window-size={width},{height}",
            f"--screenshot={out}",
            page.resolve().as_uri(),
        )
