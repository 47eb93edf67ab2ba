"use strict";
// What all charts share: their points, what is shown of one, the keyboard, and that nothing is drawn before it comes into view.
// A chart says by itself how it is drawn (`options`, `data`), where a point lies (`spot`), which one comes next (`next`) and which others share its mark (`alike`).
const HEIGHT = 242;
const LIVE = new Set(); // charts on the page, to be drawn again when the theme changes

// Per line and place (a length, if not told otherwise) one point: the middle of its records, the spread around it, and the records themselves, the one
// that is nearest to the point first.
function points(records, { lines, places, x, series }, { value, spread, join = median }) {
  return lines.map((line) => {
    const byPlace = groupBy(records.filter((r) => r[series] === line), x);
    return places.map((place) => {
      const here = byPlace.get(place) || [];
      const known = here.filter((r) => r.status === "ok" && value(r) !== null && value(r) !== undefined);
      const failed = here.filter((r) => r.status !== "ok");
      const range = known.flatMap((r) => (spread ? spread(r) : []));
      const joined = known.length ? join(known.map(value)) : null, away = (r) => Math.abs(value(r) - joined);
      return { records: known.length ? known.sort((a, b) => away(a) - away(b)) : failed, value: joined, failed: known.length ? null : untimed(failed),
        low: range.length ? Math.min(...range) : null, high: range.length ? Math.max(...range) : null };
    });
  });
}

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
  const shown = point.value === null ? MARK_WORDS[point.failed.status] || point.failed.status : `${numberText(point.value)} ${chart.unit}`;
  const alike = point.failed ? chart.alike(series, index).filter((i) => i !== series) : [];
  title.append(element("strong", `${chart.lines[series]} · ${chart.label(chart.places[index])} · ${shown}`));
  if (alike.length) title.append(element("span", ` (also ${alike.map((i) => chart.lines[i]).join(", ")})`));
  if (point.records.length > 1) title.append(element("span", ` (of ${point.records.length} records; the nearest one:)`));
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

const STEPS = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };

function moveByKey(chart, event) {
  if (event.key === "Escape") hideHover(chart);
  if (!STEPS[event.key]) return;
  event.preventDefault();
  if (!chart.u) paint(chart);
  const [series, index] = chart.at = chart.next(chart, STEPS[event.key]);
  if (!chart.points[series][index].records.length) return;
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
