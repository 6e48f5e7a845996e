// What the mouse and the keys do: tooltips, choosing a source line, zooming.
function part(tag, text) {
  const node = document.createElement(tag);
  node.textContent = text;
  tip.append(node);
}

function showTip(event) {
  tip.hidden = !hovered;
  if (!hovered) return;
  const { lane, i } = hovered, bars = lane.bars, text = at(bars.text, i), line = at(bars.line, i);
  tip.replaceChildren();
  part("b", data.heads[text]);
  if (data.texts[text]) part("span", data.texts[text] + "\n");
  if (line >= 0) part("span", "at " + data.lines[line] + "\n");
  const start = bars.start[i], length = at(bars.length, i), waited = at(bars.waited, i), after = at(bars.after, i);
  const number = at(bars.number, i);
  part("span", (number >= 0 ? "instruction " + number + ", " : "") + time(start) + " to " + time(start + length) + " (" + time(length) + ")");
  if (after > 0) part("span", "\nresult visible " + time(after) + " later");
  if (waited > 0) part("span", "\nwaited " + time(waited) + " before: " + data.whys[at(bars.why, i)]);
  const box = tip.getBoundingClientRect();
  tip.style.left = Math.max(4, Math.min(event.clientX + 14, innerWidth - box.width - 8)) + "px";
  tip.style.top = (event.clientY + 18 + box.height > innerHeight ? event.clientY - box.height - 12 : event.clientY + 18) + "px";
}

function choose(line, scroll) {
  chosenLine = line === chosenLine ? -1 : line;
  for (const node of document.querySelectorAll(".chosen")) node.classList.remove("chosen");
  for (const node of document.querySelectorAll('[data-line="' + chosenLine + '"]')) {
    node.classList.add("chosen");
    const box = node.closest(".code");
    if (box && scroll) box.scrollTop += node.getBoundingClientRect().top - box.getBoundingClientRect().top - box.clientHeight / 2;
  }
  redraw();
}

for (const node of document.querySelectorAll("[data-line]")) {
  node.addEventListener("click", () => choose(Number(node.dataset.line), !node.closest(".code")));
}

let grip = null;
lanes.addEventListener("pointerdown", event => {
  grip = { x: event.clientX, from: view.from, to: view.to, moved: false };
  lanes.setPointerCapture(event.pointerId);
});
lanes.addEventListener("pointermove", event => {
  if (grip && (grip.moved || Math.abs(event.clientX - grip.x) > 4)) {
    grip.moved = true;
    hovered = null;
    const by = (grip.x - event.clientX) / lanes.clientWidth * (grip.to - grip.from);
    show(grip.from + by, grip.to + by);
  } else {
    const before = hovered;
    hovered = find(event);
    if (hovered?.lane !== before?.lane || hovered?.i !== before?.i) redraw();
  }
  showTip(event);
});
lanes.addEventListener("pointerup", event => {
  if (grip && !grip.moved) {
    const bar = find(event), line = bar ? at(bar.lane.bars.line, bar.i) : -1;
    if (line >= 0) choose(line, true); else choose(chosenLine, false);
  }
  grip = null;
});
lanes.addEventListener("pointerleave", () => { hovered = null; tip.hidden = true; redraw(); });
lanes.addEventListener("dblclick", event => {
  const bar = find(event);
  if (!bar) return show(0, data.end);
  const start = bar.lane.bars.start[bar.i], length = at(bar.lane.bars.length, bar.i);
  show(start - length * 2, start + length * 3);
});
lanes.addEventListener("wheel", event => {
  if (event.ctrlKey || event.metaKey || event.altKey) {
    const box = lanes.getBoundingClientRect();
    zoom(Math.exp(event.deltaY * (event.ctrlKey ? .004 : .002)), (event.clientX - box.left) / box.width);
  } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
    pan((event.deltaX || event.deltaY) / lanes.clientWidth);
  } else return;
  event.preventDefault();
}, { passive: false });
lanes.addEventListener("keydown", event => {
  const act = { ArrowLeft: () => pan(-.2), ArrowRight: () => pan(.2), a: () => pan(-.2), d: () => pan(.2), "+": () => zoom(.6), "=": () => zoom(.6),
    w: () => zoom(.6), "-": () => zoom(1.6), s: () => zoom(1.6), 0: () => show(0, data.end), Escape: () => choose(-1, false) }[event.key];
  if (!act || event.ctrlKey || event.metaKey) return;
  act();
  event.preventDefault();
});

function moveMap(event) {
  const box = map.getBoundingClientRect(), centre = (event.clientX - box.left) / box.width * data.end, half = (view.to - view.from) / 2;
  show(centre - half, centre + half);
}
map.addEventListener("pointerdown", event => { map.setPointerCapture(event.pointerId); moveMap(event); });
map.addEventListener("pointermove", event => { if (event.buttons) moveMap(event); });
document.getElementById("zoom-in").addEventListener("click", () => zoom(.5));
document.getElementById("zoom-out").addEventListener("click", () => zoom(2));
document.getElementById("zoom-all").addEventListener("click", () => show(0, data.end));

new ResizeObserver(redraw).observe(lanes);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { readColours(); redraw(); });
readColours();
draw();
