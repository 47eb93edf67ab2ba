"use strict";
// Everything above the table of records, for one setting: speed, memory and preparing here, the rest in files of their own.

function picture(name) {
  const found = DATA.pictures[name];
  if (!found || !found.shades) return null;
  const canvas = element("canvas", null, "picture"), size = found.shades.length;
  canvas.width = found.shades[0].length;
  canvas.height = size;
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

// Why some lines have no time somewhere, in words.
function failures(records) {
  const list = element("ul", null, "words"), all = unique(records.map((r) => r.seqlen)).sort((a, b) => a - b);
  // reasons that differ in their numbers only are one; so are passes, and then kernels, with the same reason at the same lengths
  const alike = (r) => (r.reason || MARK_WORDS[r.status]).replace(/\d[\d.]*( ?[KMGT]i?B)?/g, "#");
  const join = (groups, name, rest) => [...groupBy(groups, (g) => JSON.stringify(rest.map((key) => g[key])))].map(([, same]) => ({ ...same[0], [name]: unique(same.map((g) => g[name])).join(", ") }));
  const failed = records.filter((r) => r.status !== "ok").sort((a, b) => PASSES.indexOf(a.pass) - PASSES.indexOf(b.pass));
  let groups = [...groupBy(failed, (r) => JSON.stringify([MARKS[r.status], r.line, r.pass, alike(r)]))].map(([, group]) => ({
    mark: MARKS[group[0].status] || "E", line: group[0].line, pass: group[0].pass, reason: group[group.length - 1].reason || MARK_WORDS[group[0].status], alike: alike(group[0]), lengths: lengthsText(unique(group.map((r) => r.seqlen)), all) }));
  groups = join(groups, "pass", ["mark", "line", "alike", "lengths"]);
  groups = join(groups, "line", ["mark", "pass", "alike", "lengths"]);
  list.append(...groups.map((g) => element("li", `${g.mark} ${g.line}, ${g.pass}: ${g.reason} (${g.lengths})`)));
  if (groups.length <= MOST_WORDS) return list;
  const folded = element("details");
  folded.append(element("summary", `Why ${unique(failed.map((r) => r.line)).length} of ${unique(records.map((r) => r.line)).length} have no time somewhere`, "words"), list);
  return folded;
}

// Three lengths and more that follow each other are named by their ends.
function lengthsText(lengths, all) {
  const sorted = [...lengths].sort((a, b) => a - b), first = all.indexOf(sorted[0]);
  const gapless = sorted.length > 2 && sorted.every((n, i) => all[first + i] === n);
  return gapless ? `${sizeText(sorted[0])} to ${sizeText(sorted[sorted.length - 1])}` : sorted.map(sizeText).join(", ");
}

const SPEED = {
  unit: "TFLOP/s", value: (r) => r.tflops,
  spread: (r) => (r.ms_p20 && r.ms_p80 ? [r.tflops * r.ms_median / r.ms_p80, r.tflops * r.ms_median / r.ms_p20] : []),
};

function speedCharts(records, lines) {
  const place = document.getElementById("charts");
  place.replaceChildren();
  for (const [problem, group] of groupBy(records, "problem")) {
    const found = DATA.pictures[problem];
    const card = element("article", null, "mask"), top = element("div", null, "top"), words = element("div");
    words.append(element("h3", problem));
    if (found) {
      const params = Object.entries(found.params).map(([name, value]) => `${name}=${value}`).join(", ");
      words.append(element("p", `${(100 * found.density).toFixed(1)} % visible at ${sizeText(found.seqlen)}${params ? ", " + params : ""} (seed ${found.seed})`));
    }
    top.append(...[picture(problem), words].filter(Boolean));
    const grid = element("div", null, "grid");
    for (const pass of PASSES) {
      const own = group.filter((r) => r.pass === pass);
      if (own.some((r) => lines.includes(r.line))) grid.append(lineChart(`${problem}, ${PASS_WORDS[pass]}`, own, lines, SPEED));
    }
    card.append(top, grid, failures(group));
    place.append(card);
  }
}

// Charts under one legend; one with lines of another kind has its own below it.
function chartsWithLegend(section, records, lines, charts) {
  const made = [], shown = new Set();
  for (const { title, only = () => true, ...how } of charts) {
    const own = records.filter((r) => only(r) && r.status === "ok" && how.value(r) !== null && how.value(r) !== undefined);
    if (!own.length) continue;
    made.push(lineChart(title, own, how.look ? measured(own, how.series) : lines, how));
    if (how.look) made[made.length - 1].append(element("div", null, "legend"));
    if (how.look) fillLegend(made[made.length - 1].lastChild, measured(own, how.series), how.look);
    else own.forEach((r) => shown.add(r.line));
  }
  fillLegend(document.getElementById(`${section}-legend`), lines.filter((line) => shown.has(line)));
  document.getElementById(`${section}-charts`).replaceChildren(...(made.length ? made : [element("p", "Not measured; on a CPU there is no count of it.", "note")]));
}

const most = (values) => Math.max(...values);

function memory(records, lines) {
  const pattern = (r) => (DATA.patterns.includes(r.mask) ? r.problem : ""); // the size of blocks matters to memory
  chartsWithLegend("memory", records, lines, unique(records.map(pattern)).flatMap((name) => PASSES.map((pass) => ({
    title: name ? `${name}, ${pass}` : pass, only: (r) => r.pass === pass && pattern(r) === name, unit: "GiB", log: true, value: (r) => r.peak_gib || null, join: most }))));
}

// A mask is made once for all kernels, so its lines are masks; the other two are the kernel's.
function preparing(records, lines) {
  const masks = measured(records, "problem"), positive = (name) => (r) => (r[name] > 0 ? r[name] : null), how = { unit: "ms", log: true, join: most };
  chartsWithLegend("preparing", records, lines, [
    { ...how, title: "planning for the kernel", value: positive("plan_ms") },
    { ...how, title: "first call (compiling)", value: positive("compile_ms") },
    { ...how, title: "making the mask", value: positive("build_ms"), series: "problem", look: (mask) => ({ number: masks.indexOf(mask) }) },
  ]);
}

// Lines that have a time somewhere: a legend or a table of the others would say nothing.
const measured = (records, series) => unique(records.filter((r) => r.status === "ok").map((r) => r[series])).sort();

function draw(setting) {
  clearCharts();
  const records = RECORDS.filter((r) => r.setting === setting), lines = measured(records, "line");
  const without = unique(records.map((r) => r.line)).filter((line) => !lines.includes(line)).sort();
  fillLegend(document.getElementById("legend"), lines);
  document.getElementById("untimed").textContent = without.length ? `Without any time in this setting, for the reasons below the charts: ${without.join(", ")}.` : "";
  headline(records);
  speedCharts(records, lines);
  bars(records);
  scaling(records);
  peak(records, lines);
  accuracy(records, lines);
  memory(records, lines);
  preparing(records, lines);
}
