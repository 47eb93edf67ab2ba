"use strict";
// Lines over length (or ranks, or another field), drawn by uPlot. Markers, spreads and letters for what has no time are added in its draw hook.
const DASHES = [[], [8, 4], [2, 3], [10, 3, 2, 3], [5, 5]];
const HEIGHT = 242;
const LIVE = new Set(); // charts on the page, to be drawn again when the theme changes

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
// A colour that comes again has another shape; what was simulated has hollow markers and a thin dotted line.
const styleOf = (i, line) => ({ color: css(`--s${i % 8}`), shape: (i + Math.floor(i / 8)) % 4,
  ...(SIMULATED.has(line) ? { dash: [1, 4], width: 1.2, hollow: true } : { dash: DASHES[i % DASHES.length], width: 1.8, hollow: false }) });

function marker(context, { shape, hollow }, x, y, size) {
  context.beginPath();
  if (shape === 0) context.arc(x, y, size, 0, 2 * Math.PI);
  else if (shape === 1) context.rect(x - size, y - size, 2 * size, 2 * size);
  else {
    const corners = shape === 2 ? [[0, -1.3], [1.2, 1], [-1.2, 1]] : [[0, -1.4], [1.4, 0], [0, 1.4], [-1.4, 0]];
    corners.forEach(([dx, dy], i) => (i ? context.lineTo(x + dx * size, y + dy * size) : context.moveTo(x + dx * size, y + dy * size)));
    context.closePath();
  }
  if (!hollow) return context.fill();
  context.save();
  context.setLineDash([]);
  context.lineWidth = size / 2.5;
  context.fillStyle = css("--paper");
  context.fill();
  context.stroke();
  context.restore();
}

// Per line and place (a length, if not told otherwise) one point: the middle of its records, the spread around it, and the records themselves.
function points(records, { lines, places, x, series }, { value, spread, join = median }) {
  return lines.map((line) => {
    const byPlace = groupBy(records.filter((r) => r[series] === line), x);
    return places.map((place) => {
      const here = byPlace.get(place) || [];
      const known = here.filter((r) => r.status === "ok" && value(r) !== null && value(r) !== undefined);
      const failed = here.filter((r) => r.status !== "ok");
      const range = known.flatMap((r) => (spread ? spread(r) : []));
      return { records: known.length ? known : failed, value: known.length ? join(known.map(value)) : null, failed: known.length ? null : failed[0],
        low: range.length ? Math.min(...range) : null, high: range.length ? Math.max(...range) : null };
    });
  });
}

// What has no time at a place, one row per letter: several lines with the same letter share one, with their number.
function feetAt(chart, index) {
  const failed = chart.points.map((line, i) => ({ i, point: line[index] })).filter(({ point }) => point.failed);
  return [...groupBy(failed, ({ point }) => MARKS[point.failed.status] || "E")].map(([letter, group]) => ({ letter, lines: group.map(({ i }) => i) }));
}

function drawFeet(u, chart, index, base, ratio) {
  const at = (j) => u.valToPos(chart.places[j], "x", true), { ctx } = u;
  const beside = [index - 1, index + 1].filter((j) => j in chart.places).map((j) => Math.abs(at(j) - at(index)));
  const narrow = Math.min(...beside) < 22 * ratio; // on a phone there is room for the letter alone
  feetAt(chart, index).forEach(({ letter, lines }, row) => {
    ctx.fillStyle = lines.length > 1 ? css("--quiet") : styleOf(chart.styles[lines[0]], chart.lines[lines[0]]).color;
    ctx.fillText(lines.length > 1 && !narrow ? `${letter}${lines.length}` : letter, at(index), base - (4 + 12 * row) * ratio);
  });
}

function drawExtras(u, chart) {
  const { ctx } = u, ratio = devicePixelRatio, base = u.bbox.top + u.bbox.height;
  ctx.save();
  ctx.textAlign = "center";
  ctx.setLineDash([]);
  ctx.font = `bold ${11 * ratio}px system-ui, sans-serif`;
  chart.places.forEach((place, j) => drawFeet(u, chart, j, base, ratio));
  chart.points.forEach((line, i) => {
    const style = styleOf(chart.styles[i], chart.lines[i]);
    ctx.strokeStyle = ctx.fillStyle = style.color;
    line.forEach((point, j) => {
      const x = u.valToPos(chart.places[j], "x", true);
      if (point.value === null) return;
      if (point.low !== null) {
        ctx.lineWidth = 1.5 * ratio;
        ctx.beginPath();
        ctx.moveTo(x, u.valToPos(point.low, "y", true));
        ctx.lineTo(x, u.valToPos(point.high, "y", true));
        ctx.stroke();
      }
      marker(ctx, style, x, u.valToPos(point.value, "y", true), 3.5 * ratio);
    });
  });
  ctx.restore();
}

function yRange(chart, log) {
  const values = chart.points.flat().flatMap((p) => [p.value, p.low, p.high]).filter((v) => v !== null && (!log || v > 0));
  if (!values.length) return [log ? 0.1 : 0, 1];
  const most = Math.max(...values);
  const feet = Math.max(...chart.places.map((place, j) => feetAt(chart, j).length)); // letters get a strip of their own
  return log ? [Math.min(...values) / 2, most * 2] : [-0.075 * feet * most, most * 1.08 || 1];
}

function axisText(value) {
  if (value === null || value < 0) return ""; // below zero is the strip of letters
  return value === 0 || value >= 1e-4 ? String(Number(value.toPrecision(3))) : value.toExponential(1);
}

// Labels that would run into each other go to a second row, powers of two stay in the first; what touches others in both is left out.
function spacedLabels(u, chart, ends) {
  const width = (u.bbox.width / devicePixelRatio || u.width - 80), rows = [[], []], even = (place) => Number.isInteger(Math.log2(place));
  const at = (place) => (width * Math.log(place / ends[0])) / Math.log(ends[1] / ends[0]), room = (place) => 4 + 7 * String(chart.label(place)).length;
  for (const place of [...chart.places].reverse().sort((a, b) => even(b) - even(a))) {
    rows.find((kept) => kept.every((other) => Math.abs(at(place) - at(other)) >= (room(place) + room(other)) / 2))?.push(place);
  }
  return chart.places.map((place) => (rows[0].includes(place) ? chart.label(place) : rows[1].includes(place) ? `\n${chart.label(place)}` : ""));
}

const aboveZero = (u, splits) => splits.map((value) => (value < 0 ? null : value));

// On a logarithmic axis: powers of ten, or more of them where there would be one at most.
function roundOnes(u, splits) {
  const digit = (value) => Number((value / 10 ** Math.floor(Math.log10(value))).toPrecision(3));
  const [tens, some] = [[1], [1, 2, 5]].map((kept) => splits.map((value) => (kept.includes(digit(value)) ? value : null)));
  return tens.filter(Boolean).length > 1 ? tens : some;
}

function options(chart, width) {
  const axis = { stroke: css("--quiet"), grid: { stroke: css("--line"), width: 1 }, ticks: { stroke: css("--line"), width: 1 } };
  const log = Boolean(chart.log), filter = log ? roundOnes : aboveZero, ends = [chart.places[0] / 1.4, chart.places[chart.places.length - 1] * 1.4];
  return {
    width, height: HEIGHT, legend: { show: false },
    cursor: { points: { show: false }, drag: { x: false, y: false }, y: false },
    scales: { x: { time: false, distr: 3, log: 2, range: () => ends }, y: { distr: log ? 3 : 1, range: () => yRange(chart, log) } },
    axes: [{ ...axis, splits: () => chart.places, values: (u) => spacedLabels(u, chart, ends), space: 20, size: 46 },
      { ...axis, filter, grid: { ...axis.grid, filter }, ticks: { ...axis.ticks, filter }, size: 66, values: (u, splits) => splits.map(axisText) }],
    series: [{}, ...chart.points.map((line, i) => {
      const style = styleOf(chart.styles[i], chart.lines[i]);
      return { stroke: style.color, dash: style.dash, width: style.width, points: { show: false } };
    })],
    hooks: { draw: [(u) => drawExtras(u, chart)], setCursor: [(u) => hoverAt(u, chart)] },
  };
}

function hoverAt(u, chart) {
  const { left, top, idx } = u.cursor;
  if (left < 0 || idx === null || idx === undefined) { if (chart.hovered) hideHover(chart); return; }
  let best = -1, distance = Infinity;
  const take = (i, y) => { if (Math.abs(y - top) < distance) [best, distance] = [i, Math.abs(y - top)]; };
  chart.points.forEach((line, i) => { if (line[idx].value !== null) take(i, u.valToPos(line[idx].value, "y")); });
  feetAt(chart, idx).forEach(({ lines }, row) => take(lines[0], u.bbox.height / devicePixelRatio - 8 - 12 * row));
  if (best < 0) return hideHover(chart);
  const box = u.over.getBoundingClientRect();
  showHover(chart, best, idx, box.left + left, box.top + top);
}

function showHover(chart, series, index, x, y) {
  const point = chart.points[series][index], box = document.getElementById("hover");
  chart.hovered = true;
  const title = element("div");
  const shown = point.value === null ? MARK_WORDS[point.failed.status] || point.failed.status : `${numberText(point.value)} ${chart.unit}`;
  const alike = point.failed ? feetAt(chart, index).find(({ lines }) => lines.includes(series)).lines.filter((i) => i !== series) : [];
  title.append(element("strong", `${chart.lines[series]} · ${chart.label(chart.places[index])} · ${shown}`));
  if (alike.length) title.append(element("span", ` (also ${alike.map((i) => chart.lines[i]).join(", ")})`));
  if (point.records.length > 1) title.append(element("span", ` (of ${point.records.length} records; the first one:)`));
  const same = point.records[0].same;
  if (same) title.append(element("div", `At this length the mask ${point.records[0].mask} is the same as ${same}.`));
  box.replaceChildren(title, fieldList(point.records[0]));
  box.hidden = false;
  const { width, height } = box.getBoundingClientRect();
  box.style.left = Math.max(4, x + 16 + width < innerWidth ? x + 16 : Math.min(x - width - 16, innerWidth - width - 4)) + "px";
  box.style.top = Math.max(4, Math.min(y + 12, innerHeight - height - 4)) + "px";
}

function hideHover(chart) {
  chart.hovered = false;
  document.getElementById("hover").hidden = true;
}

function moveByKey(chart, event) {
  const steps = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
  if (event.key === "Escape") hideHover(chart);
  if (!steps) return;
  event.preventDefault();
  const rows = chart.lines.length, columns = chart.places.length, all = rows * columns;
  let [row, column] = chart.at || [0, -1];
  for (let tries = 0; tries < all; tries++) { // on to the next point that has something to show
    row = (row + steps[0] + rows) % rows;
    column = (column + steps[1] + columns) % columns;
    if (chart.points[row][column] && chart.points[row][column].records.length) break;
    if (column < 0) column = 0;
  }
  chart.at = [row, column];
  const box = chart.u.over.getBoundingClientRect(), value = chart.points[row][column].value;
  if (chart.points[row][column].records.length) showHover(chart, row, column, box.left + chart.u.valToPos(chart.places[column], "x"), box.top + (value === null ? box.height : chart.u.valToPos(value, "y")));
}

function paint(chart) {
  if (chart.u) chart.u.destroy();
  // null breaks a line where something failed; undefined lets it pass over a length that nobody asked for
  const data = [chart.places, ...chart.points.map((line) => line.map((p) => (p.records.length ? p.value : undefined)))];
  chart.u = new uPlot(options(chart, chart.plot.clientWidth || 320), data, chart.plot);
  chart.plot.dataset.drawn = "yes";
}

const resized = new ResizeObserver((entries) => {
  for (const entry of entries) {
    const chart = entry.target.chart;
    if (chart.u && Math.abs(chart.u.width - entry.contentRect.width) > 1) chart.u.setSize({ width: entry.contentRect.width, height: HEIGHT });
  }
});
const seen = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    if (!entry.isIntersecting || entry.target.chart.u) continue;
    paint(entry.target.chart);
    resized.observe(entry.target);
  }
}, { rootMargin: "300px" });

// A chart under `name`; nothing is drawn before it comes into view.
function lineChart(name, records, lines, { unit, log, x = "seqlen", series = "line", ...how }) {
  const all = unique(records.map((r) => r[series])), kept = lines.filter((line) => all.includes(line));
  const places = unique(records.map((r) => r[x])).sort((a, b) => a - b);
  const chart = { lines: kept, styles: kept.map((line) => lines.indexOf(line)), places, unit, log, x, series, label: x === "seqlen" ? sizeText : numberText };
  chart.points = points(records, chart, how);
  const box = element("figure", null, "chart");
  box.style.margin = 0;
  chart.plot = element("div", null, "plot");
  chart.plot.tabIndex = 0;
  chart.plot.setAttribute("role", "img");
  chart.plot.setAttribute("aria-label", `${name}: ${unit} over ${x} for ${kept.join(", ")}; arrow keys read the points`);
  chart.plot.addEventListener("keydown", (event) => moveByKey(chart, event));
  chart.plot.addEventListener("blur", () => hideHover(chart));
  chart.plot.chart = chart;
  box.append(element("figcaption", `${name}, ${unit}`, "name"), chart.plot);
  LIVE.add(chart);
  seen.observe(chart.plot);
  return box;
}

function clearCharts() {
  for (const chart of LIVE) {
    seen.unobserve(chart.plot);
    resized.unobserve(chart.plot);
    if (chart.u) chart.u.destroy();
  }
  LIVE.clear();
  document.getElementById("hover").hidden = true;
}
