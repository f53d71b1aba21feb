// What a report does under a pointer or at the arrow keys: it shows the values there. The page is complete without it.
// The curves themselves hold the values: a point of the drawing, put back through its axes. They are read anew when they are
// asked for, as the plots of `ebb ui` grow.
"use strict";
for (const plot of document.querySelectorAll(".plot")) showValues(plot);
function curvesOf(plot) {
  return [...plot.querySelectorAll(".line")].map(line => {
    const points = []; let x = 0, y = 0;
    for (const [, word, first, second] of line.getAttribute("d").matchAll(/([MLHV])([\d.-]+)(?: ([\d.-]+))?/g)) {
      if (word === "H") x = +first; else if (word === "V") y = +first; else [x, y] = [+first, +second];
      points.push([x, y]);
    }
    return { name: line.dataset.name, steps: "steps" in line.dataset, points };
  });
}
function showValues(plot) {
  const box = plot.querySelector("svg").viewBox.baseVal;
  const tip = document.createElement("div"), rule = document.createElement("div");
  tip.className = "tip"; rule.className = "rule"; tip.hidden = rule.hidden = true; plot.append(rule, tip);
  const show = share => {
    const [[x0, x1, xKind, xLog], [y0, y1, yKind, yLog]] = [plot.dataset.x, plot.dataset.y].map(facts => facts.split(" "));
    const along = (low, high, log, part) => log ? low * (high / low) ** part : +low + (high - low) * part;
    const toX = at => along(x0, x1, xLog, at / box.width), toY = at => along(y0, y1, yLog, 1 - at / box.height);
    const at = share * box.width, lines = [];
    let where = at;
    for (const { name, steps, points } of curvesOf(plot)) {
      let best = null;
      for (const point of points)
        if (steps ? point[0] <= at : best === null || Math.abs(point[0] - at) < Math.abs(best[0] - at)) best = point;
      if (best === null) continue;
      if (!steps && lines.length === 0) where = best[0];
      if (lines.length < 9) lines.push(`${name} ${write(toY(best[1]), yKind)}`);
    }
    tip.textContent = [write(toX(where), xKind), ...lines].join("\n");
    tip.hidden = rule.hidden = false;
    rule.style.left = `${100 * where / box.width}%`;
    tip.style.left = `${Math.min(85, Math.max(15, 100 * where / box.width))}%`; tip.style.top = "40%";
  };
  let share = 1;
  const hide = () => { tip.hidden = rule.hidden = true; };
  plot.addEventListener("pointermove", event => {
    const area = plot.getBoundingClientRect();
    show((event.clientX - area.left) / area.width);
  });
  plot.addEventListener("pointerleave", hide);
  plot.tabIndex = 0;
  plot.addEventListener("focus", () => show(share)); plot.addEventListener("blur", hide);
  plot.addEventListener("keydown", event => {
    const move = { ArrowLeft: -0.01, ArrowRight: 0.01 }[event.key];
    if (move) { share = Math.min(1, Math.max(0, share + move)); show(share); event.preventDefault(); }
  });
}
const compact = Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 4 });
function write(value, kind) {
  if (kind === "usd") return "$" + value.toFixed(value < 1 ? 4 : 2);
  if (kind === "percent") return (100 * value).toFixed(1) + " %";
  if (kind !== "seconds") return Math.abs(value) >= 1e5 ? compact.format(value) : String(+value.toPrecision(4));
  const whole = Math.round(value), hours = Math.floor(whole / 3600), minutes = Math.floor(whole / 60) % 60;
  if (whole < 60) return `${value.toFixed(1)} s`;
  return hours ? `${hours} h ${minutes} min` : `${minutes} min ${whole % 60} s`;
}
