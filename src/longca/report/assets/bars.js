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
    chart.lines.forEach((line, series) => { if (chart.points[series][index].records) slots.push({ series, index, x: x++ }); });
    x += BAR_GAP;
  });
  return slots;
}

const barData = (chart) => [chart.slots.map(({ x }) => x), ...chart.lines.map((line, i) => chart.slots.map(({ series, index }) => (series === i ? chart.points[i][index].value : null)))];

function barOptions(chart, width) {
  const axis = axisLook(), most = Math.max(0, ...chart.points.flat().flatMap((p) => [p.value, p.high])) || 1;
  const last = chart.slots[chart.slots.length - 1].x, middles = chart.places.map((place, j) => { const own = chart.slots.filter(({ index }) => index === j); return own.length ? (own[0].x + own[own.length - 1].x) / 2 : null; });
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
    if (point.value === null) drawWord(ctx, `${point.failed.letter} ${point.failed.words}`, at, floor - 5 * ratio, ratio);
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

// `groups` are [place, chart of one pass, number of the place in it].
function barChart(name, groups, lines, x) {
  const kept = lines.filter((line) => groups.some(([, chart]) => chart.lines.includes(line)));
  const chart = { lines: kept, places: groups.map(([place]) => place), unit: "TFLOP/s", x, look: lookOf,
    label: x === "seqlen" ? sizeText : (place) => `${x} ${numberText(place)}`, options: barOptions, data: barData, spot: spotOfBar, next: nextBar, alike: () => [] };
  chart.points = kept.map((line) => groups.map(([, data, j]) => pointOf(data.points[data.lines.indexOf(line)]?.[j])));
  chart.slots = slotsOf(chart);
  if (!chart.slots.length) return null;
  const figure = addChart(name, chart), without = chart.slots.filter(({ series, index }) => chart.points[series][index].value === null);
  const words = unique(without.map(({ series, index }) => `${chart.lines[series]} ${chart.points[series][index].failed.words}`)); // a canvas reads out nothing
  if (words.length) chart.plot.setAttribute("aria-label", `${chart.plot.getAttribute("aria-label")}; without a bar: ${words.join(", ")}`);
  chart.plot.style.minWidth = `${Math.ceil(LEAST_BAR * (chart.slots[chart.slots.length - 1].x + 2) + 80)}px`;
  return figure;
}

// The bars of one mask at every length, or of one family of patterns at one length, a group per share that is visible.
function barGroups(cards, pass, chosen) {
  const charts = cards.map(({ ratio, passes }) => ({ ratio, chart: passes.find(([name]) => name === pass)?.[1] })).filter(({ chart }) => chart);
  if (chosen === ALL_LENGTHS) return charts.flatMap(({ chart }) => chart.places.map((place, j) => [place, chart, j]));
  const here = charts.filter(({ chart }) => chart.places.includes(Number(chosen))), byRatio = here.length > 1;
  return here.map(({ ratio, chart }) => [byRatio ? ratio : Number(chosen), chart, chart.places.indexOf(Number(chosen))]).sort(([a], [b]) => a - b);
}

function drawBars({ cards, ran }, chosen) {
  const place = document.getElementById("bars-charts"), every = chosen === ALL_LENGTHS, shown = new Set();
  clearCharts(place);
  place.replaceChildren();
  for (const [name, group] of groupBy(cards, (card) => (every || card.ratio === null ? card.panel : card.family))) {
    const card = element("article", null, "mask"), grid = element("div", null, every ? "" : "grid");
    for (const pass of PASS_WORDS.keys()) {
      const groups = barGroups(group, pass, chosen), x = !every && groups.length > 1 ? "ratio" : "seqlen";
      const figure = groups.length ? barChart(`${name}, ${PASS_WORDS.get(pass)}`, groups, ran, x) : null;
      if (figure) figure.querySelector(".plot").chart.lines.forEach((line) => shown.add(line));
      if (figure) grid.append(figure);
    }
    if (grid.childElementCount) { card.append(grid); place.append(card); }
  }
  fillLegend(document.getElementById("bars-legend"), ran.filter((line) => shown.has(line)));
}

// Who never ran anywhere in a setting is named above the charts, and has no place among the bars.
function bars(setting) {
  const lengths = setting.lengths.map(String);
  document.getElementById("bars").hidden = document.getElementById("to-bars").hidden = !lengths.length;
  const options = [option(ALL_LENGTHS, "all, side by side"), ...lengths.map((n) => option(n, sizeText(Number(n))))];
  choose("bars-length", options, lengths[lengths.length - 1] ?? ALL_LENGTHS, (chosen) => drawBars(lengths.length ? setting : { cards: [], ran: [] }, chosen));
}
