// Small multiples: a chart per mask with common axes, the legend of all of them, and one chart enlarged.
const drawn = new Map(); // charts by the element they stand in
const pending = new Map(); // options of charts that have not come into view
const zooming = new Map(); // timers of charts that are being zoomed
const ZOOM_REST = 150; // milliseconds after the last step of a zoom: browsers limit how often a page may change its address

const seen = new IntersectionObserver(
  (entries) =>
    entries.forEach(({ isIntersecting, target }) => {
      if (isIntersecting && pending.has(target)) paint(target);
    }),
  { rootMargin: "300px" },
);
const resized = new ResizeObserver((entries) => entries.forEach(({ target }) => drawn.get(target)?.resize()));

function paint(place) {
  const chart = drawn.get(place) ?? echarts.init(place);
  drawn.set(place, chart);
  resized.observe(place);
  chart.setOption(pending.get(place), true);
  pending.delete(place);
  chart.off("click");
  chart.on("click", ({ data }) => {
    if (data?.cell) showCell(data.cell);
  });
  chart.off("datazoom");
  chart.on("datazoom", () => {
    clearTimeout(zooming.get(place));
    zooming.set(
      place,
      setTimeout(() => place.dispatchEvent(new CustomEvent("zoom", { detail: zoomText(chart.getOption().dataZoom[0]) })), ZOOM_REST),
    );
  });
  place.dataset.drawn = "yes";
}

// Draws now where the place is in view, else when it comes into view.
function plan(place, made) {
  pending.set(place, made);
  seen.observe(place);
  const { top, bottom } = place.getBoundingClientRect();
  if (drawn.has(place) || (top < innerHeight + 300 && bottom > -300 && place.isConnected)) paint(place);
}

function forget(places) {
  for (const place of places) {
    clearTimeout(zooming.get(place));
    zooming.delete(place);
    drawn.get(place)?.dispose();
    drawn.delete(place);
    pending.delete(place);
    seen.unobserve(place);
    resized.unobserve(place);
  }
}

// Left and right move the tooltip from place to place; Escape hides it, and so does leaving the chart.
function readByKeys(place) {
  let at = -1;
  place.addEventListener("blur", () => drawn.get(place)?.dispatchAction({ type: "hideTip" }));
  place.addEventListener("keydown", (event) => {
    const chart = drawn.get(place),
      series = chart?.getOption().series ?? [],
      longest = series.reduce((best, { data }, i) => (data.length > series[best].data.length ? i : best), 0);
    const count = series[longest]?.data.length ?? 0,
      step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (event.key === "Escape") chart?.dispatchAction({ type: "hideTip" });
    if (!step || !count) return;
    at = (at + step + count) % count;
    chart.dispatchAction({ type: "showTip", seriesIndex: longest, dataIndex: at });
    event.preventDefault();
  });
}

function plot(label) {
  const place = element("div", null, "plot");
  place.tabIndex = 0;
  place.setAttribute("role", "img");
  place.setAttribute("aria-label", label);
  readByKeys(place);
  return place;
}

const asBars = (frame) => state.chart === "bars" || frame.places.length < 2;
const barPlace = (frame) =>
  frame.places.map(String).includes(state.at) ? Number(state.at) : frame.places.includes(setting().at) ? setting().at : frame.places.at(-1);

// In words what a chart shows, for those who cannot see it.
function chartWords(frame, panel) {
  const { matrix } = setting(),
    own = matrix.filter((entry) => entry.panel === panel && entry.pass === passNow());
  return `${panel}, ${unitOf(frame.measure)} over ${axisTitle(frame.axis)}. ${own.map(answerWords).join(" ")}`;
}

function card(frame, [panel, mask]) {
  const box = element("article", null, "panel"),
    title = button(null, () => setState({ panel }), "panel-name");
  title.append(...[maskPicture(mask, panel), breakable(panel)].filter(Boolean));
  title.title = `${maskWords(mask)}. Click to enlarge.`;
  const heading = element("h3");
  heading.append(title);
  const place = plot(chartWords(frame, panel));
  if (asBars(frame)) place.style.height = `${60 + 21 * Math.max(3, barCount(frame, panel, barPlace(frame)))}px`;
  box.append(heading, place);
  return [box, place, asBars(frame) ? barOption(frame, panel, barPlace(frame)) : lineOption(frame, panel)];
}

function drawLegend(order, id = "legend") {
  const box = document.getElementById(id);
  const choose = (name, alone) => {
    const coloured = state.show ?? order.slice(0, BEST_FEW),
      mode = modeOf(name, order),
      others = order.filter((other) => other !== name);
    if (alone)
      return setState(others.every((other) => state.hide.includes(other)) ? { show: null, hide: [] } : { show: [name], hide: others });
    if (mode === "colour") return setState({ show: coloured.filter((other) => other !== name), hide: unique([...state.hide, name]) });
    return setState({ show: unique([...coloured, name]), hide: state.hide.filter((other) => other !== name) });
  };
  box.replaceChildren(
    ...order.map((name) => {
      const mode = modeOf(name, order),
        // detail: the second of two clicks
        made = button(null, (event) => choose(name, event.shiftKey || event.detail === 2), `chip ${mode}`);
      made.append(swatch(name), nameText(name));
      made.setAttribute("aria-pressed", String(mode === "colour"));
      const action = { colour: "Shown. Click to hide", grey: "Grey. Click to colour", hidden: "Hidden. Click to show" }[mode];
      made.title = `${action}; double-click or Shift+click shows it alone.`;
      return made;
    }),
    button("Best five", () => setState({ show: null, hide: [] }), "chip all"),
    button("All", () => setState({ show: [...order], hide: [] }), "chip all"),
    button("None", () => setState({ show: [], hide: [...order] }), "chip all"),
  );
}

function drawControls(frame) {
  bindSelect(
    "measure",
    "measure",
    offered(frame.cells).map(({ key, label }) => option(key, label)),
    frame.measure.key,
  );
  bindSelect(
    "base",
    "base",
    frame.order.map((name) => option(name)),
    baseNow() ?? "",
  );
  bindSelect(
    "at",
    "at",
    frame.places.map((x) => option(String(x), placeText(frame.axis, x))),
    String(barPlace(frame)),
  );
  bindButtons(
    "scale",
    "scale",
    [
      ["linear", "Linear"],
      ["log", "Log"],
    ],
    state.scale,
  );
  bindButtons(
    "chart",
    "chart",
    [
      ["lines", "Lines"],
      ["bars", "Bars"],
    ],
    asBars(frame) ? "bars" : "lines",
  );
  document.getElementById("base-label").hidden = frame.measure.key !== "speedup";
  document.getElementById("at-label").hidden = !asBars(frame) || frame.places.length < 2;
  document.getElementById("chart").hidden = frame.places.length < 2;
}

function drawMultiples() {
  const frame = chartFrame(),
    place = document.getElementById("charts");
  forget([...place.querySelectorAll(".plot")]);
  drawControls(frame);
  drawLegend(frame.order);
  const panels = setting().panels.filter(([panel]) => frame.shown.some((cell) => cell.panel === panel));
  const cards = panels.map((panel) => card(frame, panel));
  place.replaceChildren(
    ...(cards.length
      ? cards.map(([box]) => box)
      : [element("p", "There is nothing to draw: no kernel has a time here, or all are hidden.", "note")]),
  );
  for (const [, plotted, made] of cards) plan(plotted, made);
  const without = unique(cellsNow().map(({ line }) => line)).filter((line) => !frame.order.includes(line));
  document.getElementById("untimed").textContent = without.length ? `Without any time here: ${without.map(nameText).join(", ")}.` : "";
}
