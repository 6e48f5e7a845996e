"use strict";
// The timeline: every lane on one canvas, zoom and pan, a strip that shows the whole run. Bars come as columns; a
// column that is one value for all bars is that value. Nothing from the data is ever put into the page as markup.
const data = JSON.parse(document.getElementById("timeline-data").textContent);
const lanes = document.getElementById("lanes"), map = document.getElementById("map"), tip = document.getElementById("tip");
const AXIS = 26;
const view = { from: 0, to: data.end };
let chosenLine = -1, hovered = null, waiting = false;

const at = (column, i) => (Array.isArray(column) ? column[i] : column);
const css = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
let colours = [], ink = {};
function readColours() {
  colours = data.palette.map(css);
  ink = { text: css("--text"), dim: css("--dim"), line: css("--line"), soft: css("--soft"), panel: css("--panel"), accent: css("--accent") };
}

function time(ps) {
  const a = Math.abs(ps);
  if (a >= 1e9) return (ps / 1e9).toFixed(a >= 1e10 ? 2 : 3) + " ms";
  if (a >= 1e6) return (ps / 1e6).toFixed(a >= 1e8 ? 1 : a >= 1e7 ? 2 : 3) + " µs";
  return (ps / 1e3).toFixed(a >= 1e5 ? 0 : 1) + " ns";
}

function fit(canvas, height) {
  const scale = window.devicePixelRatio || 1, width = canvas.clientWidth;
  canvas.style.height = height + "px";
  canvas.width = Math.max(1, Math.round(width * scale));
  canvas.height = Math.round(height * scale);
  const g = canvas.getContext("2d");
  g.setTransform(scale, 0, 0, scale, 0, 0);
  g.clearRect(0, 0, width, height);
  return [g, width];
}

function step(range, width) {
  const rough = range / Math.max(2, width / 110), power = 10 ** Math.floor(Math.log10(rough));
  return [1, 2, 5, 10].map(m => m * power).find(s => s >= rough);
}

function firstVisible(bars, from) {
  let low = 0, high = bars.start.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (bars.reach[middle] < from) low = middle + 1; else high = middle;
  }
  return low;
}

function drawAxis(g, width, height) {
  const s = step(view.to - view.from, width), digits = Math.max(0, Math.ceil(-Math.log10(s / unit().ps)));
  g.font = "11.5px system-ui, sans-serif";
  for (let t = Math.ceil(view.from / s) * s; t <= view.to; t += s) {
    const x = Math.round((t - view.from) / (view.to - view.from) * width) + .5;
    g.strokeStyle = ink.line; g.beginPath(); g.moveTo(x, 18); g.lineTo(x, height); g.stroke();
    g.fillStyle = ink.dim;
    const label = (t / unit().ps).toFixed(digits) + " " + unit().name, wide = g.measureText(label).width;
    if (x + 4 + wide < width) g.fillText(label, Math.max(0, x - (x < 4 ? 0 : wide / 2)), 13);
  }
}
function unit() {
  const range = view.to - view.from;
  return range > 4e9 ? { ps: 1e9, name: "ms" } : range > 2e6 ? { ps: 1e6, name: "µs" } : { ps: 1e3, name: "ns" };
}

function drawLane(g, lane, top, width) {
  const bars = lane.bars, scale = width / (view.to - view.from), drawn = new Map();
  for (let i = firstVisible(bars, view.from); i < bars.start.length && bars.start[i] < view.to; i++) {
    const x0 = Math.max(-2, (bars.start[i] - view.from) * scale);
    const x1 = Math.min(width + 2, (bars.start[i] + at(bars.length, i) - view.from) * scale);
    const row = at(bars.top, i), key = row + 4096 * at(bars.color, i), chosen = at(bars.line, i) === chosenLine;
    if (x1 < 0 || (!chosen && x1 - x0 < 1 && x1 <= (drawn.get(key) ?? -1))) continue;
    drawn.set(key, Math.floor(x1) + .999);
    const gap = x1 - x0 > 5 ? 1 : 0, y = top + lane.height * row / 1000, h = lane.height * at(bars.height, i) / 1000;
    g.globalAlpha = chosenLine < 0 || chosen ? 1 : .22;
    g.fillStyle = colours[at(bars.color, i)];
    g.fillRect(x0, y, Math.max(x1 - x0 - gap, .8), Math.max(h - (h > 4 ? 1 : 0), 1));
    const label = data.heads[at(bars.text, i)];
    if (lane.labels && h > 13 && x1 - x0 > 46) writeLabel(g, label, x0, x1, y, h, at(bars.light, i));
    if (hovered && hovered.lane === lane && hovered.i === i) {
      g.globalAlpha = 1; g.strokeStyle = ink.text; g.lineWidth = 1.5; g.strokeRect(x0, y, Math.max(x1 - x0 - gap, 2), h - 1); g.lineWidth = 1;
    }
  }
  g.globalAlpha = 1;
}
function writeLabel(g, label, x0, x1, y, h, light) {
  const left = Math.max(x0, 0), room = Math.min(x1, lanes.clientWidth) - left - 8;
  if (room < 34) return;
  g.font = "11px system-ui, sans-serif";
  let shown = label;
  if (g.measureText(shown).width > room) {
    shown = shown.slice(0, Math.max(1, Math.floor(room / g.measureText(shown).width * shown.length) - 1)) + "…";
  }
  g.fillStyle = light ? ink.text : ink.panel;
  g.fillText(shown, left + 4, y + h / 2 + 4);
}

function draw() {
  const height = AXIS + data.lanes.reduce((sum, lane) => sum + lane.height + lane.gap, 0);
  const [g, width] = fit(lanes, height);
  drawAxis(g, width, height);
  let top = AXIS;
  for (const lane of data.lanes) {
    g.globalAlpha = .55; g.fillStyle = ink.soft; g.fillRect(0, top, width, lane.height - 1); g.globalAlpha = 1;
    drawLane(g, lane, top, width);
    top += lane.height + lane.gap;
  }
  drawMap();
}
function drawMap() {
  const [g, width] = fit(map, 30), small = data.lanes.filter(lane => lane.overview), h = 26 / Math.max(1, small.length);
  small.forEach((lane, row) => {
    const bars = lane.bars;
    let last = -1;
    for (let i = 0; i < bars.start.length; i++) {
      if (at(bars.wait, i)) continue;
      const x = bars.start[i] / data.end * width, x1 = (bars.start[i] + at(bars.length, i)) / data.end * width;
      if (x1 < last) continue;
      last = Math.floor(x1) + .9;
      g.fillStyle = colours[at(bars.color, i)];
      g.fillRect(x, 2 + row * h, Math.max(.8, x1 - x), Math.max(1, h - 1));
    }
  });
  const a = view.from / data.end * width, b = view.to / data.end * width;
  g.fillStyle = ink.dim; g.globalAlpha = .25; g.fillRect(0, 0, a, 30); g.fillRect(b, 0, width - b, 30); g.globalAlpha = 1;
  g.strokeStyle = ink.accent; g.lineWidth = 2; g.strokeRect(a + 1, 1, Math.max(2, b - a - 2), 28); g.lineWidth = 1;
}
function redraw() {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => { waiting = false; draw(); });
}

function show(from, to) {
  const range = Math.min(data.end, Math.max(to - from, 2000));
  view.from = Math.min(Math.max(0, from), data.end - range);
  view.to = view.from + range;
  redraw();
}
function zoom(factor, x = .5) {
  const centre = view.from + (view.to - view.from) * x, range = (view.to - view.from) * factor;
  show(centre - range * x, centre + range * (1 - x));
}
const pan = part => show(view.from + (view.to - view.from) * part, view.to + (view.to - view.from) * part);

function find(event) {
  const box = lanes.getBoundingClientRect(), y = event.clientY - box.top;
  const t = view.from + (event.clientX - box.left) / box.width * (view.to - view.from);
  const slack = (view.to - view.from) / box.width * 2;
  let top = AXIS, best = null;
  for (const lane of data.lanes) {
    if (y >= top && y < top + lane.height) {
      const bars = lane.bars, inside = (y - top) / lane.height * 1000;
      for (let i = firstVisible(bars, t - slack); i < bars.start.length && bars.start[i] <= t + slack; i++) {
        const row = at(bars.top, i);
        if (inside < row || inside > row + at(bars.height, i) || bars.start[i] + at(bars.length, i) < t - slack) continue;
        best = { lane, i, exact: bars.start[i] <= t && bars.start[i] + at(bars.length, i) >= t };
        if (best.exact && !at(bars.wait, i)) return best;
      }
    }
    top += lane.height + lane.gap;
  }
  return best;
}

for (const lane of data.lanes) { // the furthest end up to each bar: bars of several rows overlap
  let reach = 0;
  lane.bars.reach = lane.bars.start.map((start, i) => (reach = Math.max(reach, start + at(lane.bars.length, i))));
}
