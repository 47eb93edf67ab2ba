"use strict";
// What all charts share: their points, what is shown of one, the keyboard, and that nothing is drawn before it comes into view.
// A chart says by itself how it is drawn (`options`, `data`), where a point lies (`spot`), which one comes next (`next`) and which others share its mark (`alike`).
const HEIGHT = 242;
const LIVE = new Set(); // charts on the page, to be drawn again when the theme changes

// A point of the data: [record, how many] and, where there is a value, the value and the ends of its spread. Where nobody asked for anything it is null.
function pointOf(found) {
  if (!found) return { record: null, records: 0, value: null, low: null, high: null, failed: null };
  const [record, records, value = null, low = null, high = null] = found;
  return { record, records, value, low, high, failed: value === null ? statusOf(record) : null };
}

const pointsOf = ({ points }) => points.map((line) => line.map(pointOf));

// The same chart with some of its lines.
const only = ({ lines, places, points }, kept) => ({ lines: lines.filter((line) => kept.includes(line)), places, points: points.filter((_, i) => kept.includes(lines[i])) });

function axisText(value) {
  if (value === null || value < 0) return ""; // below zero is the strip of letters or markers
  return value === 0 || value >= 1e-4 ? String(Number(value.toPrecision(3))) : value.toExponential(1);
}

const aboveZero = (u, splits) => splits.map((value) => (value < 0 ? null : value));

function axisLook() {
  return { stroke: css("--quiet"), grid: { stroke: css("--line"), width: 1 }, ticks: { stroke: css("--line"), width: 1 } };
}

const CURSOR = { points: { show: false }, drag: { x: false, y: false }, y: false };

function drawSpread(u, x, point) {
  if (point.low === null) return;
  u.ctx.lineWidth = 1.5 * devicePixelRatio;
  u.ctx.beginPath();
  u.ctx.moveTo(x, u.valToPos(point.low, "y", true));
  u.ctx.lineTo(x, u.valToPos(point.high, "y", true));
  u.ctx.stroke();
}

function showHover(chart, series, index, x, y) {
  const point = chart.points[series][index], box = document.getElementById("hover");
  chart.hovered = true;
  const title = element("div");
  const shown = point.value === null ? point.failed.words : `${numberText(point.value)} ${chart.unit}`;
  const alike = point.failed ? chart.alike(series, index).filter((i) => i !== series) : [];
  title.append(element("strong", `${chart.lines[series]} · ${chart.label(chart.places[index])} · ${shown}`));
  if (alike.length) title.append(element("span", ` (also ${alike.map((i) => chart.lines[i]).join(", ")})`));
  if (point.records > 1) title.append(element("span", ` (of ${point.records} records; the nearest one:)`));
  const same = get(point.record, "same");
  if (same) title.append(element("div", `At this length the mask ${get(point.record, "mask")} is the same as ${same}.`));
  box.replaceChildren(title, fieldList(fieldsOf(point.record)));
  box.hidden = false;
  const { width, height } = box.getBoundingClientRect();
  box.style.left = Math.max(4, x + 16 + width < innerWidth ? x + 16 : Math.min(x - width - 16, innerWidth - width - 4)) + "px";
  box.style.top = Math.max(4, Math.min(y + 12, innerHeight - height - 4)) + "px";
}

function hideHover(chart) {
  chart.hovered = false;
  document.getElementById("hover").hidden = true;
}

const STEPS = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };

function moveByKey(chart, event) {
  if (event.key === "Escape") hideHover(chart);
  if (!Object.hasOwn(STEPS, event.key)) return;
  event.preventDefault();
  if (!chart.u) paint(chart);
  const [series, index] = chart.at = chart.next(chart, STEPS[event.key]);
  if (!chart.points[series][index].records) return;
  const [left, top] = chart.spot(chart, series, index);
  const scroller = chart.plot.parentNode, box = () => chart.u.over.getBoundingClientRect();
  if (scroller.scrollWidth > scroller.clientWidth) scroller.scrollLeft += box().left + left - scroller.getBoundingClientRect().left - scroller.clientWidth / 2;
  showHover(chart, series, index, box().left + left, box().top + top);
}

function paint(chart) {
  if (chart.u) chart.u.destroy();
  chart.u = new uPlot(chart.options(chart, chart.plot.clientWidth || 320), chart.data(chart), chart.plot);
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

// A figure that holds `chart`, with a name.
function addChart(name, chart) {
  const figure = element("figure", null, "chart"), box = element("div", null, "wide");
  chart.plot = element("div", null, "plot");
  chart.plot.tabIndex = 0;
  chart.plot.setAttribute("role", "img");
  chart.plot.setAttribute("aria-label", `${name}: ${chart.unit} over ${chart.x} for ${chart.lines.join(", ")}; arrow keys read the points`);
  chart.plot.addEventListener("keydown", (event) => moveByKey(chart, event));
  chart.plot.addEventListener("blur", () => hideHover(chart));
  chart.plot.chart = chart;
  box.append(chart.plot);
  figure.append(element("figcaption", `${name}, ${chart.unit}`, "name"), box);
  LIVE.add(chart);
  seen.observe(chart.plot);
  return figure;
}

function clearCharts(place = document) {
  for (const chart of [...LIVE].filter(({ plot }) => place.contains(plot))) {
    seen.unobserve(chart.plot);
    resized.unobserve(chart.plot);
    if (chart.u) chart.u.destroy();
    LIVE.delete(chart);
  }
  document.getElementById("hover").hidden = true;
}
