"""The page in a real browser, where the machine has one: no error, nothing wider than the window, values under the pointer.

EBB_BROWSER names a Chromium that is not on the PATH. `make walk` takes the pictures that people look at.
"""

import asyncio
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest

from devcluster.walk import play
from tests.client.report.test_page import PAGES

BROWSER = play.find_browser()
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no Chromium here: EBB_BROWSER names one")

# Stands before the page's own script, so that its errors are seen, and looks when everything is drawn.
PROBE = """<script>
const errors = [];
addEventListener("error", event => errors.push(String(event.message)));
document.addEventListener("securitypolicyviolation", event => errors.push(event.violatedDirective));
addEventListener("load", () => {
  const plot = document.querySelector(".plot"), tips = [];
  if (plot) {
    const area = plot.getBoundingClientRect();
    plot.dispatchEvent(new PointerEvent("pointermove", { clientX: area.right - 1, clientY: area.top + 5 }));
    tips.push(plot.querySelector(".tip").textContent);
    for (let press = 0; press < 5; press++) plot.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowLeft" }));
    tips.push(plot.querySelector(".tip").textContent);
  }
  const wide = [...document.querySelectorAll("main *")].filter(each =>
    !each.closest(".scroll") && !each.closest("svg") && each.getBoundingClientRect().right > innerWidth + 1);
  const found = {
    errors, tips, width: innerWidth, wide: wide.map(each => each.className || each.tagName),
    scrolls: document.documentElement.scrollWidth > innerWidth,
    background: getComputedStyle(document.body).backgroundColor,
    empty: [...document.querySelectorAll(".line")].filter(each => !each.getTotalLength()).map(each => each.dataset.name),
  };
  const said = document.createElement("pre"); said.id = "probe"; said.textContent = JSON.stringify(found);
  document.body.append(said);
});
</script>"""


async def probed(html: str, folder: Path, *, width: int, scheme: str) -> dict[str, Any]:
    page = folder / "page.html"
    page.write_text(html.replace("<style>", f"{PROBE}<style>", 1))
    with tempfile.TemporaryDirectory(prefix="ebb-browser-") as profile:
        process = await asyncio.create_subprocess_exec(
            str(BROWSER), "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}", "--dump-dom",
            f"--blink-settings=preferredColorScheme={play.SCHEMES[scheme]}", f"--window-size={width},900", page.as_uri(),
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        shown = (await process.communicate())[0].decode()
    found: dict[str, Any] = json.loads(shown.split('<pre id="probe">')[1].split("</pre>")[0].replace("&gt;", ">"))
    return found


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.parametrize("name", PAGES)
async def test_it_fits_and_works(name: str, width: int, scheme: str, tmp_path: Path) -> None:
    found = await probed(PAGES[name], tmp_path, width=width, scheme=scheme)
    assert (found["errors"], found["wide"], found["scrolls"], found["empty"]) == ([], [], False, [])
    assert found["background"] == {"light": "rgb(246, 247, 249)", "dark": "rgb(18, 21, 26)"}[scheme]
    if name == "job":
        last, before = (tip.split("\n") for tip in found["tips"])
        assert last[0] == "3 min 0 s"
        assert last[1].startswith("loss 0.0")
        assert before[0] == "2 min 53 s"  # five hundredths of 182 seconds further left
