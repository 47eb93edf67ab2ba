"use strict";
// Everything above the table of records, for one setting.

function picture(name) {
  const found = PICTURES.get(name);
  if (!found || !found.shades) return null;
  const canvas = element("canvas", null, "picture");
  canvas.width = found.shades[0].length;
  canvas.height = found.shades.length;
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", `The mask ${name}: queries down, keys across, dark is visible`);
  const context = canvas.getContext("2d");
  context.fillStyle = css("--s0");
  found.shades.forEach((row, y) => [...row].forEach((digit, x) => {
    context.globalAlpha = parseInt(digit, 16) / 15;
    context.fillRect(x, y, 1, 1);
  }));
  return canvas;
}

const MOST_WORDS = 4; // sentences below a chart; more are folded away

function failures({ words, summary }) {
  const list = element("ul", null, "words");
  list.append(...words.map((sentence) => element("li", sentence)));
  if (words.length <= MOST_WORDS) return list;
  const folded = element("details");
  folded.append(element("summary", summary, "words"), list);
  return folded;
}

function speedCharts({ cards, lines }) {
  const place = document.getElementById("charts");
  place.replaceChildren();
  for (const card of cards) {
    const box = element("article", null, "mask"), top = element("div", null, "top"), words = element("div"), found = PICTURES.get(card.mask);
    words.append(element("h3", card.panel));
    if (found) words.append(element("p", `${(100 * found.density).toFixed(1)} % visible at ${sizeText(found.seqlen)}${found.params && ", " + found.params} (seed ${found.seed})`));
    top.append(...[picture(card.mask), words].filter(Boolean));
    const grid = element("div", null, "grid");
    for (const [pass, chart] of card.passes) {
      const kept = only(chart, lines);
      if (kept.lines.length) grid.append(lineChart(`${card.panel}, ${PASS_WORDS.get(pass)}`, kept, { unit: "TFLOP/s", x: "seqlen" }));
    }
    box.append(top, grid, failures(card));
    place.append(box);
  }
}

// Charts under one legend; one with lines of another kind has its own below it.
function chartsWithLegend(section, charts, lines) {
  const shown = new Set(charts.filter(({ ofMasks }) => !ofMasks).flatMap((chart) => chart.lines));
  const made = charts.map((chart) => {
    const look = chart.ofMasks ? (mask) => ({ number: chart.lines.indexOf(mask) }) : lookOf, figure = lineChart(chart.title, chart, { ...chart, look });
    if (chart.ofMasks) fillLegend(figure.appendChild(element("div", null, "legend")), chart.lines, look);
    return figure;
  });
  fillLegend(document.getElementById(`${section}-legend`), lines.filter((line) => shown.has(line)));
  document.getElementById(`${section}-charts`).replaceChildren(...(made.length ? made : [element("p", "Not measured; on a CPU there is no count of it.", "note")]));
}

function scaling(charts) {
  const made = charts.map((chart) => {
    const dense = chart.dense || [], look = (line) => (dense.includes(line) ? { number: 0, dense: dense.indexOf(line) } : lookOf(line));
    const figure = lineChart(chart.title, chart, { ...chart, look });
    fillLegend(figure.appendChild(element("div", null, "legend")), chart.lines, look);
    return figure;
  });
  document.getElementById("scaling").hidden = document.getElementById("to-scaling").hidden = !made.length;
  document.getElementById("scaling-charts").replaceChildren(...made);
}

function draw(number) {
  clearCharts();
  const setting = DATA.settings[number];
  fillLegend(document.getElementById("legend"), setting.lines);
  document.getElementById("untimed").textContent = setting.untimed.length ? `Without any time in this setting, for the reasons below the charts: ${setting.untimed.join(", ")}.` : "";
  headline(number);
  speedCharts(setting);
  bars(setting);
  scaling(setting.scaling);
  peak(setting.shares);
  accuracy(setting.errors);
  chartsWithLegend("memory", setting.memory, setting.lines);
  chartsWithLegend("preparing", setting.preparing, setting.lines);
}
