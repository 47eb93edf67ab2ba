"use strict";
// The paper's bars: for each mask a group per length (of block patterns per share that is visible), in it a bar per kernel, and a word where there is none.
const BAR_GAP = 1.5; // between groups, in bars
const LEAST_BAR = 13; // pixels: a word must find room in it
const LABELLED_BAR = 24; // pixels: so has its figure
const ALL_LENGTHS = "all";

// Where each bar stands: only who was asked for at a place has one there.
function slotsOf(chart) {
  const slots = [];
  let x = 0;
  chart.places.forEach((place, index) => {
    chart.lines.forEach((line, series) => { if (chart.points[series][index].records.length) slots.push({ series, index, x: x++ }); });
    x += BAR_GAP;
  });
  return slots;
}

const barData = (chart) => [chart.slots.map(({ x }) => x), ...chart.lines.map((line, i) => chart.slots.map(({ series, index }) => (series === i ? chart.points[i][index].value : null)))];

function barOptions(chart, width) {
  const axis = axisLook(), most = Math.max(0, ...chart.points.flat().flatMap((p) => [p.value, p.high])) || 1;
  const last = chart.slots[chart.slots.length - 1].x, middles = chart.places.map((place, j) => median(chart.slots.filter(({ index }) => index === j).map(({ x }) => x)));
  return {
    width, height: HEIGHT, legend: { show: false }, cursor: CURSOR,
    scales: { x: { time: false, range: () => [-0.8, last + 0.8] }, y: { range: () => [-0.085 * most, most * 1.1] } }, // below zero: the markers
    axes: [{ ...axis, grid: { show: false }, ticks: { show: false }, splits: () => middles, values: () => chart.places.map(chart.label), size: 30 },
      { ...axis, filter: aboveZero, grid: { ...axis.grid, filter: aboveZero }, ticks: { ...axis.ticks, filter: aboveZero }, size: 66, values: (u, splits) => splits.map(axisText) }],
    series: [{}, ...chart.lines.map((line) => {
      const style = styleOf(chart.look(line));
      return { stroke: style.color, fill: style.hollow ? css("--paper") : style.color, width: style.hollow ? 1.5 : 0, paths: uPlot.paths.bars({ size: [0.84, 36] }), points: { show: false } };
    })],
    hooks: { draw: [(u) => drawWords(u, chart)], setCursor: [(u) => hoverBar(u, chart)] },
  };
}

// The marker below each bar, its spread and figure, or the word in its place.
function drawWords(u, chart) {
  const { ctx } = u, ratio = devicePixelRatio, floor = u.valToPos(0, "y", true), wide = u.valToPos(1, "x", true) - u.valToPos(0, "x", true);
  ctx.save();
  ctx.setLineDash([]);
  for (const { series, index, x } of chart.slots) {
    const point = chart.points[series][index], style = styleOf(chart.look(chart.lines[series])), at = u.valToPos(x, "x", true);
    ctx.strokeStyle = ctx.fillStyle = style.color;
    marker(ctx, style, at, floor + 7 * ratio, Math.min(3.5 * ratio, wide / 3.5));
    if (point.value === null) ctx.fillStyle = css("--quiet"); // a pale colour is no ink; the marker tells whose it is
    if (point.value === null) drawWord(ctx, `${MARKS[point.failed.status] || "E"} ${wordOf(point)}`, at, floor - 5 * ratio, ratio);
    else {
      ctx.strokeStyle = ctx.fillStyle = css("--ink");
      drawSpread(u, at, point);
      ctx.font = `${10 * ratio}px system-ui, sans-serif`;
      ctx.textAlign = "center";
      if (wide > LABELLED_BAR * ratio) ctx.fillText(String(Number(point.value.toPrecision(3))), at, u.valToPos(point.high ?? point.value, "y", true) - 4 * ratio);
    }
  }
  ctx.restore();
}

const wordOf = (point) => MARK_WORDS[point.failed.status] || point.failed.status;

function drawWord(ctx, text, x, y, ratio) {
  ctx.save();
  ctx.translate(x, y);
  ctx.rotate(-Math.PI / 2);
  ctx.font = `${11 * ratio}px system-ui, sans-serif`;
  ctx.textAlign = "left";
  ctx.textBaseline = "middle";
  ctx.fillText(text, 0, 0);
  ctx.restore();
}

function hoverBar(u, chart) {
  const { left, top, idx } = u.cursor;
  if (left < 0 || idx === null || idx === undefined) { if (chart.hovered) hideHover(chart); return; }
  const box = u.over.getBoundingClientRect(), { series, index } = chart.slots[idx];
  showHover(chart, series, index, box.left + left, box.top + top);
}

// Left and right go from bar to bar, up and down to the same kernel in another group.
function nextBar(chart, [down, right]) {
  const { slots, at } = chart, now = at ? slots.findIndex(({ series, index }) => series === at[0] && index === at[1]) : right > 0 ? -1 : 0;
  const own = right ? slots : slots.filter(({ series }) => series === slots[now].series), place = right ? now : own.indexOf(slots[now]);
  const { series, index } = own[(place + right + down + own.length) % own.length];
  return [series, index];
}

function spotOfBar(chart, series, index) {
  const { x } = chart.slots.find((slot) => slot.series === series && slot.index === index);
  return [chart.u.valToPos(x, "x"), chart.u.valToPos(chart.points[series][index].value || 0, "y")];
}

function barChart(name, records, lines, x) {
  const all = unique(records.map((r) => r.line)), kept = lines.filter((line) => all.includes(line));
  const chart = { lines: kept, places: unique(records.map((r) => r[x])).sort((a, b) => a - b), unit: SPEED.unit, x, series: "line", look: lookOf,
    label: x === "seqlen" ? sizeText : (place) => `${x} ${numberText(place)}`, options: barOptions, data: barData, spot: spotOfBar, next: nextBar, alike: () => [] };
  chart.points = points(records, chart, SPEED);
  chart.slots = slotsOf(chart);
  const figure = addChart(name, chart), without = chart.slots.filter(({ series, index }) => chart.points[series][index].value === null);
  const words = unique(without.map(({ series, index }) => `${chart.lines[series]} ${wordOf(chart.points[series][index])}`)); // a canvas reads out nothing
  if (words.length) chart.plot.setAttribute("aria-label", `${chart.plot.getAttribute("aria-label")}; without a bar: ${words.join(", ")}`);
  chart.plot.style.minWidth = `${Math.ceil(LEAST_BAR * (chart.slots[chart.slots.length - 1].x + 2) + 80)}px`;
  return figure;
}

// Who never ran anywhere in a setting is named above the charts, and has no place among the bars.
const inBars = (records) => unique(records.filter((r) => !neverRan(r)).map((r) => r.line)).sort();

function drawBars(records, chosen) {
  const place = document.getElementById("bars-charts"), lines = inBars(records), every = chosen === ALL_LENGTHS;
  const here = records.filter((r) => lines.includes(r.line) && (every || r.seqlen === Number(chosen)));
  clearCharts(place);
  place.replaceChildren();
  fillLegend(document.getElementById("bars-legend"), lines.filter((line) => here.some((r) => r.line === line)));
  for (const [name, group] of groupBy(here, every ? "problem" : "family")) {
    const card = element("article", null, "mask"), grid = element("div", null, every ? "" : "grid");
    const x = !every && unique(group.map((r) => r.ratio)).length > 1 ? "ratio" : "seqlen";
    for (const [pass, own] of groupBy(group, "pass")) grid.append(barChart(`${name}, ${PASS_WORDS[pass]}`, own, lines, x));
    card.append(grid);
    place.append(card);
  }
}

function bars(records) {
  const select = document.getElementById("bars-length"), before = select.value;
  const drawn = records.some((r) => r.status === "ok") ? records.filter((r) => !neverRan(r)) : []; // words alone would say nothing new
  const lengths = unique(drawn.map((r) => r.seqlen)).sort((a, b) => a - b);
  const option = (value, text) => Object.assign(element("option", text), { value });
  document.getElementById("bars").hidden = document.getElementById("to-bars").hidden = !lengths.length;
  select.replaceChildren(option(ALL_LENGTHS, "all, side by side"), ...lengths.map((n) => option(String(n), sizeText(n))));
  select.value = [...select.options].some(({ value }) => before && value === before) ? before : String(lengths[lengths.length - 1] ?? ALL_LENGTHS);
  select.onchange = () => drawBars(records, select.value);
  drawBars(lengths.length ? records : [], select.value);
}
