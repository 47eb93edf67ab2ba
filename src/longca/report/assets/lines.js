"use strict";
// Lines over length (or ranks, or another field), drawn by uPlot. Markers, spreads and letters for what has no time are added in its draw hook.

// What has no time at a place, one row per letter: several lines with the same letter share one, with their number.
function feetAt(chart, index) {
  const failed = chart.points.map((line, i) => ({ i, point: line[index] })).filter(({ point }) => point.failed);
  return [...groupBy(failed, ({ point }) => point.failed.letter)].map(([letter, group]) => ({ letter, lines: group.map(({ i }) => i) }));
}

function drawFeet(u, chart, index, base, ratio) {
  const at = (j) => u.valToPos(chart.places[j], "x", true), { ctx } = u;
  const beside = [index - 1, index + 1].filter((j) => j in chart.places).map((j) => Math.abs(at(j) - at(index)));
  const narrow = Math.min(...beside) < 22 * ratio; // on a phone there is room for the letter alone
  feetAt(chart, index).forEach(({ letter, lines }, row) => {
    ctx.fillStyle = lines.length > 1 ? css("--quiet") : styleOf(chart.look(chart.lines[lines[0]])).color;
    ctx.fillText(lines.length > 1 && !narrow ? `${letter}${lines.length}` : letter, at(index), base - (4 + 12 * row) * ratio);
  });
}

function drawPoints(u, chart) {
  const { ctx } = u, ratio = devicePixelRatio, base = u.bbox.top + u.bbox.height;
  ctx.save();
  ctx.textAlign = "center";
  ctx.setLineDash([]);
  ctx.font = `bold ${11 * ratio}px system-ui, sans-serif`;
  chart.places.forEach((place, j) => drawFeet(u, chart, j, base, ratio));
  chart.points.forEach((line, i) => {
    const style = styleOf(chart.look(chart.lines[i]));
    ctx.strokeStyle = ctx.fillStyle = style.color;
    line.forEach((point, j) => {
      const x = u.valToPos(chart.places[j], "x", true);
      if (point.value === null) return;
      drawSpread(u, x, point);
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

// Labels that would run into each other go to a second row, powers of two stay in the first; what touches others in both is left out.
function spacedLabels(u, chart, ends) {
  const width = (u.bbox.width / devicePixelRatio || u.width - 80), rows = [[], []], even = (place) => Number.isInteger(Math.log2(place));
  const at = (place) => (width * Math.log(place / ends[0])) / Math.log(ends[1] / ends[0]), room = (place) => 4 + 7 * String(chart.label(place)).length;
  for (const place of [...chart.places].reverse().sort((a, b) => even(b) - even(a))) {
    rows.find((kept) => kept.every((other) => Math.abs(at(place) - at(other)) >= (room(place) + room(other)) / 2))?.push(place);
  }
  return chart.places.map((place) => (rows[0].includes(place) ? chart.label(place) : rows[1].includes(place) ? `\n${chart.label(place)}` : ""));
}

// Where a logarithmic axis has its marks: at powers of ten, or at more where there would be one at most. uPlot's own marks never end on some axes that begin
// just below a power of ten.
function roundOnes(u, axis, low, high) {
  const decades = Array.from({ length: Math.ceil(Math.log10(high)) - Math.floor(Math.log10(low)) + 1 }, (_, i) => i + Math.floor(Math.log10(low)));
  const within = (digits) => decades.flatMap((decade) => digits.map((digit) => Number(`${digit}e${decade}`))).filter((value) => value >= low && value <= high);
  return [[1], [1, 2, 5], [1, 2, 3, 4, 5, 6, 7, 8, 9]].map(within).find((marks) => marks.length > 1);
}

function lineOptions(chart, width) {
  const axis = axisLook(), log = Boolean(chart.log), marks = log ? { splits: roundOnes } : {}, filter = log ? (u, splits) => splits : aboveZero, ends = [chart.places[0] / 1.4, chart.places[chart.places.length - 1] * 1.4];
  return {
    width, height: HEIGHT, legend: { show: false }, cursor: CURSOR,
    scales: { x: { time: false, distr: 3, log: 2, range: () => ends }, y: { distr: log ? 3 : 1, range: () => yRange(chart, log) } },
    axes: [{ ...axis, splits: () => chart.places, values: (u) => spacedLabels(u, chart, ends), space: 20, size: 46 },
      { ...axis, ...marks, filter, grid: { ...axis.grid, filter }, ticks: { ...axis.ticks, filter }, size: 66, values: (u, splits) => splits.map(axisText) }],
    series: [{}, ...chart.points.map((line, i) => {
      const style = styleOf(chart.look(chart.lines[i]));
      return { stroke: style.color, dash: style.dash, width: style.width, points: { show: false } };
    })],
    hooks: { draw: [(u) => drawPoints(u, chart)], setCursor: [(u) => hoverAt(u, chart)] },
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

// On to the next point that has something to show.
function nextPoint(chart, [down, right]) {
  const rows = chart.lines.length, columns = chart.places.length;
  let [row, column] = chart.at || [0, right > 0 ? -1 : 0];
  for (let tries = 0; tries < rows * columns; tries++) {
    row = (row + down + rows) % rows;
    column = (column + right + columns) % columns;
    if (chart.points[row][column].records) break;
  }
  return [row, column];
}

function spotOfPoint(chart, series, index) {
  const { value } = chart.points[series][index];
  return [chart.u.valToPos(chart.places[index], "x"), value === null ? chart.u.over.clientHeight : chart.u.valToPos(value, "y")];
}

// null breaks a line where something failed; undefined lets it pass over a length that nobody asked for
const lineData = (chart) => [chart.places, ...chart.points.map((line) => line.map((p) => (p.records ? p.value : undefined)))];

function lineChart(name, data, { unit, x, log = false, look = lookOf, ofMasks = false }) {
  const chart = { lines: data.lines, places: data.places, points: pointsOf(data), unit, log, x, look, ofMasks, label: x === "seqlen" ? sizeText : numberText,
    options: lineOptions, data: lineData, spot: spotOfPoint, next: nextPoint, alike: (i, j) => feetAt(chart, j).find((foot) => foot.lines.includes(i)).lines };
  return addChart(name, chart);
}
