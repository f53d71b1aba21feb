// Keeps the page new: takes bodies from the stream of events and changes only what differs, so that nothing flickers and focus,
// selection, scrolling and opened details stay. page.js, the report's, shows the values of plots.
"use strict";
const policy = self.trustedTypes
  ? trustedTypes.createPolicy("ebb", { createHTML: text => text })
  : { createHTML: text => text };
const main = document.querySelector("main"), lost = document.getElementById("lost"), at = document.getElementById("at");
const log = document.getElementById("log"), follow = document.getElementById("follow");
const MOST_LINES = 2000, OWN = ".tip, .rule", KEPT = new Set(["open", "tabindex"]);
const watched = new WeakSet(document.querySelectorAll(".plot"));

function isSame(old, fresh) {
  return old.nodeType === fresh.nodeType && old.nodeName === fresh.nodeName && old.dataset?.key === fresh.dataset?.key;
}
function change(old, fresh) {
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.data !== fresh.data) old.data = fresh.data;
    return;
  }
  for (const { name } of [...old.attributes]) if (!fresh.hasAttribute(name) && !KEPT.has(name)) old.removeAttribute(name);
  for (const { name, value } of fresh.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  changeChildren(old, fresh);
}
function changeChildren(old, fresh) {
  const skip = node => { while (node?.matches?.(OWN)) node = node.nextSibling; return node; };
  let place = skip(old.firstChild);
  for (const child of [...fresh.childNodes]) {
    let match = place;
    while (match && !isSame(match, child)) match = skip(match.nextSibling);
    if (!match) old.insertBefore(child, place);
    else {
      change(match, child);
      if (match === place) place = skip(place.nextSibling); else old.insertBefore(match, place);
    }
  }
  while (place) { const next = skip(place.nextSibling); place.remove(); place = next; }
}
function takeBody(html) {
  const fresh = document.createElement("template");
  fresh.innerHTML = policy.createHTML(html);
  changeChildren(main, fresh.content);
  for (const plot of main.querySelectorAll(".plot"))
    if (!watched.has(plot)) { watched.add(plot); showValues(plot); }
}
function takeLines({ fresh, lines }) {
  if (!log) return;
  const low = follow.checked;
  if (fresh) log.replaceChildren();
  for (const { worker, rank, time, text } of lines) {
    const line = document.createElement("div"), who = document.createElement("span");
    if (worker === null) line.className = "note";
    else {
      who.className = `who c${worker % 8}`;
      who.textContent = rank === null ? `w${worker}` : `w${worker} r${rank}`;
      who.title = time;
    }
    line.append(who, document.createTextNode(text));
    log.append(line);
  }
  while (log.childElementCount > MOST_LINES) log.firstElementChild.remove();
  if (low) log.scrollTop = log.scrollHeight;
}
if (log) log.addEventListener("scroll", () => {
  follow.checked = log.scrollHeight - log.scrollTop - log.clientHeight < 24;
});
if (follow) follow.addEventListener("change", () => { if (follow.checked) log.scrollTop = log.scrollHeight; });

let stream = null;
function connect() {
  if (stream) return;
  stream = new EventSource(main.dataset.stream);
  stream.addEventListener("page", event => {
    const { at: time, body } = JSON.parse(event.data);
    lost.hidden = true;
    at.textContent = time && `as of ${time}`;
    if (body !== undefined) takeBody(body);
  });
  stream.addEventListener("log", event => takeLines(JSON.parse(event.data)));
  stream.addEventListener("error", () => {
    const gone = stream?.readyState === EventSource.CLOSED;
    lost.textContent = gone
      ? "ebb ui does not know this page any more: open the address that it printed when it was started last."
      : "ebb ui does not answer: it was closed, or this machine slept. What stands here is old. Trying again.";
    lost.hidden = false;
  });
}
// Nobody watches a page that is hidden: then nothing is read.
document.addEventListener("visibilitychange", () => {
  if (!document.hidden) connect();
  else if (stream) { stream.close(); stream = null; }
});
addEventListener("pageshow", event => { if (event.persisted && !document.hidden) connect(); });
addEventListener("pagehide", () => { stream?.close(); stream = null; });
if (!document.hidden) connect();
