"""`make walk`: record the walk on the local stack and write docs/walk.md. Exit code 0 only if all of it went as it should."""

import argparse
import asyncio
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

from devcluster.demo.story import CommandFailed, Story
from devcluster.settings import CHECKOUT, BoxError
from devcluster.walk.play import Walk, find_browser, page
from devcluster.walk.terminal import opened

DOCS = CHECKOUT / "docs"


async def record(story: Story) -> None:
    """Bring up what is missing, walk, write."""
    await story.run("the Kubernetes of this machine", [sys.executable, "-m", "devcluster", "up", "--with-pulumi"])
    await story.run("the platform on it, by pulumi up", [sys.executable, "-m", "devcluster", "stack", "up"])
    path = f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"
    found = find_browser()
    if found is None:
        story.say("no Chromium was found (EBB_BROWSER names one): the page will have no pictures")
    with tempfile.TemporaryDirectory(prefix="ebb-walk-") as place:
        folder = Path(place)
        async with opened(folder, path=path) as terminal, opened(CHECKOUT, path=path) as cloud:
            walk = Walk(
                terminal=terminal,
                cloud=cloud,
                path=path,
                folder=folder,
                pictures=DOCS / "walk" if found else None,
                browser=found or "",
                hidden={str(folder): "~", str(CHECKOUT): "~/ebb", str(Path.home()): "~"},
                tell=story.tell,
            )
            scenes = await walk.perform()
    (DOCS / "walk.md").write_text(page(scenes, recorded=f"{datetime.now(UTC):%Y-%m-%d}"), encoding="utf-8")
    story.tell("docs/walk.md is written")


def main() -> int:
    argparse.ArgumentParser(prog="python -m devcluster.walk", description=__doc__).parse_args()
    story = Story(time.time())
    try:
        asyncio.run(record(story))
    except (BoxError, CommandFailed) as error:
        print(f"\nthe walk stopped: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ninterrupted. `make walk` starts again; `make down` removes everything.", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
