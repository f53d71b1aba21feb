"""The picture of a stack: one HTML file without anything from elsewhere. A row per part, a column per step of the making.

Resources of one type in one cell are one rectangle with their number: that keeps hundreds legible. A click on a rectangle lists
them; a click on one shows its record, and marks what it needs (blue) and what needs it (orange). The search field dims what does
not match.
"""

import html as escapes
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from testing.pulumi.mocks.preview import short


@dataclass(frozen=True, kw_only=True)
class Node:
    """`step`: 1 for what can be made first. `needs`: labels of other nodes."""

    record: dict[str, Any]
    part: str
    step: int
    needs: Sequence[str]

    @property
    def label(self) -> str:
        return f"{self.record['type']}::{self.record['name']}"


def html(name: str, nodes: Sequence[Node]) -> str:
    """The page. Deterministic."""
    parts = sorted({node.part for node in nodes}, key=lambda part: (_middle(part, nodes), part))
    last = max((node.step for node in nodes), default=1)
    head = "".join(f"<th>{step}</th>" for step in range(1, last + 1))
    rows = "".join(_row(part, [node for node in nodes if node.part == part], last) for part in parts)
    data = {node.label: {"record": node.record, "needs": list(node.needs)} for node in nodes}
    # "<" is written as an escape, so that no text in the data can end the script.
    script = json.dumps(data, sort_keys=True).replace("<", "\\u003c")
    return PAGE.format(
        title=escapes.escape(f"The resources of stack {name}"), count=len(nodes), steps=last, head=head, rows=rows, data=script
    )


def _middle(part: str, nodes: Sequence[Node]) -> float:
    """Parts that are made first stand first."""
    steps = [node.step for node in nodes if node.part == part]
    return sum(steps) / len(steps)


def _row(part: str, nodes: Sequence[Node], last: int) -> str:
    cells = "".join(f"<td>{_cell([node for node in nodes if node.step == step])}</td>" for step in range(1, last + 1))
    return f"<tr><th>{escapes.escape(part)}<br><small>{len(nodes)}</small></th>{cells}</tr>\n"


def _cell(nodes: Sequence[Node]) -> str:
    kinds = sorted({node.record["type"] for node in nodes})
    return "".join(_box(kind, [node for node in nodes if node.record["type"] == kind]) for kind in kinds)


def _box(kind: str, nodes: Sequence[Node]) -> str:
    package = kind.partition(":")[0]
    items = "".join(_item(node) for node in sorted(nodes, key=lambda node: str(node.record["name"])))
    what = escapes.escape(short(kind).rpartition(" ")[2])
    number = f" <b>{len(nodes)}</b>" if len(nodes) > 1 else ""
    opening = f'<details class="{escapes.escape(package)}" title="{escapes.escape(kind)}">'
    return f"{opening}<summary>{what}{number}</summary>{items}</details>"


def _item(node: Node) -> str:
    kept = " kept" if node.record["protect"] or node.record["retainOnDelete"] else ""
    name = escapes.escape(str(node.record["name"]))
    return f'<a class="one{kept}" data-label="{escapes.escape(node.label)}" href="#">{name}</a>'


PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>
body {{ font: 13px/1.35 system-ui, sans-serif; margin: 0; color: #1b2733; display: grid; grid-template-columns: 1fr 26rem;
  height: 100vh; }}
main {{ overflow: auto; padding: 0 1rem 1rem; }}
aside {{ overflow: auto; border-left: 1px solid #cdd5dd; padding: 1rem; background: #f6f8fa; overflow-wrap: anywhere; }}
h1 {{ font-size: 17px; }} pre {{ white-space: pre-wrap; font-size: 11.5px; }}
table {{ border-collapse: collapse; }}
thead th {{ position: sticky; top: 0; background: #fff; padding: 4px; z-index: 2; }}
tbody th {{ position: sticky; left: 0; background: #fff; text-align: left; padding: 6px 10px 6px 0; z-index: 1;
  min-width: 7rem; }}
td {{ vertical-align: top; padding: 3px; min-width: 7.5rem; border-top: 1px solid #e3e8ed; border-left: 1px dotted #e3e8ed; }}
tbody th {{ border-top: 1px solid #e3e8ed; }}
details {{ border: 1px solid #b9c4ce; border-left: 4px solid #5b6b7a; border-radius: 4px; margin: 2px 0; background: #fff; }}
details.aws {{ border-left-color: #d9822b; }} details.kubernetes {{ border-left-color: #326ce5; }}
summary {{ cursor: pointer; padding: 1px 5px; white-space: nowrap; }}
a.one {{ display: block; padding: 0 6px; color: inherit; text-decoration: none; }}
a.one:hover {{ background: #eef2f6; }} a.kept::after {{ content: " (kept)"; color: #8a5a00; }}
.dim {{ opacity: .25; }} .chosen {{ outline: 2px solid #1b2733; }}
.needed, .needed > summary {{ background: #cfe3ff; }} .needing, .needing > summary {{ background: #ffe0bf; }}
input {{ width: 100%; box-sizing: border-box; padding: 4px; }}
</style></head><body>
<main><h1>{title}</h1>
<p>{count} resources in {steps} steps: each column is made after those to its left that it needs; destroy goes from right to left.
Boxes hold what is of one type: orange AWS, blue Kubernetes. Click one, then a name.</p>
<table><thead><tr><th></th>{head}</tr></thead><tbody>
{rows}</tbody></table></main>
<aside><input id="search" placeholder="Search by name or type"><div id="shown"><p>What a resource needs turns blue, what needs it
orange.</p></div></aside>
<script>
const data = {data};
const items = [...document.querySelectorAll("a.one")];
const byLabel = new Map(items.map(item => [item.dataset.label, item]));
const needing = new Map();
for (const [label, node] of Object.entries(data))
  for (const need of node.needs) needing.set(need, [...(needing.get(need) || []), label]);
function mark(labels, kind) {{
  for (const label of labels) {{
    const item = byLabel.get(label);
    if (item) {{ item.classList.add(kind); item.parentElement.classList.add(kind); }}
  }}
}}
function list(title, labels) {{
  const box = document.createElement("div"), head = document.createElement("h3");
  head.textContent = title + " (" + labels.length + ")";
  box.append(head);
  for (const label of labels) {{
    const link = document.createElement("a");
    link.className = "one"; link.href = "#"; link.textContent = label;
    link.onclick = event => {{ event.preventDefault(); choose(label); }};
    box.append(link);
  }}
  return box;
}}
function choose(label) {{
  for (const kind of ["needed", "needing", "chosen"])
    document.querySelectorAll("." + kind).forEach(one => one.classList.remove(kind));
  const node = data[label], item = byLabel.get(label);
  if (!node) return;
  item.parentElement.open = true;
  item.classList.add("chosen");
  item.scrollIntoView({{block: "nearest", inline: "nearest"}});
  mark(node.needs, "needed"); mark(needing.get(label) || [], "needing");
  const shown = document.getElementById("shown"), head = document.createElement("h2"), text = document.createElement("pre");
  head.textContent = node.record.name;
  text.textContent = JSON.stringify(node.record, null, 1);
  shown.replaceChildren(head, list("Needs", node.needs), list("Is needed by", needing.get(label) || []), text);
}}
items.forEach(item => item.onclick = event => {{ event.preventDefault(); choose(item.dataset.label); }});
document.getElementById("search").oninput = event => {{
  const wanted = event.target.value.toLowerCase();
  for (const box of document.querySelectorAll("details")) {{
    let any = false;
    for (const item of box.querySelectorAll("a.one")) {{
      const hit = item.dataset.label.toLowerCase().includes(wanted);
      item.classList.toggle("dim", !hit); any = any || hit;
    }}
    box.classList.toggle("dim", !any);
    box.open = wanted !== "" && any;
  }}
}};
</script></body></html>
"""
