"use strict";
// Everything above the table of records, for one setting.

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

// Of `lines`, which give the styles, those in `shown`.
function fillLegend(box, lines, shown = lines) {
  box.replaceChildren(...shown.map((line) => {
    const i = lines.indexOf(line), entry = element("span"), key = element("canvas"), ratio = devicePixelRatio;
    [key.width, key.height] = [34 * ratio, 12 * ratio];
    [key.style.width, key.style.height] = ["34px", "12px"];
    const context = key.getContext("2d"), style = styleOf(i, line);
    context.scale(ratio, ratio);
    context.strokeStyle = context.fillStyle = style.color;
    context.lineWidth = style.width;
    context.setLineDash(style.dash);
    context.beginPath();
    context.moveTo(0, 6);
    context.lineTo(34, 6);
    context.stroke();
    marker(context, style, 17, 6, 3.5);
    entry.append(key, line);
    return entry;
  }));
}

const MOST_WORDS = 4; // sentences below a chart; more are folded away

// Why some lines have no time somewhere, in words.
function failures(records) {
  const list = element("ul", null, "words"), all = unique(records.map((r) => r.seqlen)).sort((a, b) => a - b);
  // reasons that differ in their numbers only are one; so are passes, and then kernels, with the same reason at the same lengths
  const alike = (r) => (r.reason || MARK_WORDS[r.status]).replace(/\d[\d.]*/g, "#");
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
      if (own.some((r) => lines.includes(r.line))) grid.append(lineChart(`${problem}, ${{ fwd: "forward", bwd: "backward", "fwd+bwd": "forward and backward" }[pass]}`, own, lines, SPEED));
    }
    card.append(top, grid, failures(group));
    place.append(card);
  }
}

// A name that may break after each underline, so that columns stay narrow.
function breakable(text, tag = "th") {
  const cell = element(tag);
  text.split("_").forEach((part, i) => cell.append(...(i ? ["_", element("wbr"), part] : [part])));
  return cell;
}

function table(head, rows) {
  const made = element("table"), body = element("tbody"), first = element("tr");
  head.forEach((text) => { const cell = breakable(text); cell.scope = "col"; first.append(cell); });
  const top = element("thead");
  top.append(first);
  for (const row of rows) {
    const line = element("tr");
    line.append(...row.map((cell) => (cell instanceof Node ? cell : element("td", cell))));
    body.append(line);
  }
  made.append(top, body);
  return made;
}

const sameAs = (r) => (r.same ? ` (as ${r.same})` : "");

function headline(records) {
  const rows = [];
  // what was simulated is never ahead of, or behind, what was measured
  for (const [, group] of groupBy(records, (r) => JSON.stringify([r.problem, r.simulated]))) for (const pass of PASSES) {
    const mask = group[0].problem, ok = group.filter((r) => r.pass === pass && r.status === "ok");
    if (!ok.length) continue;
    const longest = Math.max(...ok.map((r) => r.seqlen));
    const ranked = [...groupBy(ok.filter((r) => r.seqlen === longest), "line")].map(([line, rs]) => ({ line, speed: median(rs.map((r) => r.tflops)), peak: median(rs.map((r) => r.mfu).filter((v) => v !== null)) })).sort((a, b) => b.speed - a.speed);
    const [best, next] = ranked;
    rows.push([breakable(mask, "td"), pass, sizeText(longest) + sameAs(ok.find((r) => r.seqlen === longest)), breakable(best.line, "td"), numberText(best.speed), best.peak === null ? "" : `${(100 * best.peak).toFixed(0)} %`, next ? `${(best.speed / next.speed).toFixed(2)}× ${next.line}` : "the only one"]);
  }
  document.getElementById("headline").replaceChildren(table(["mask", "pass", "length", "fastest", "TFLOP/s", "of peak", "ahead of"], rows));
}

// A table kernel × mask of shares between 0 and 1; `share` gives {value, title} or null.
function shareTable(records, lines, share) {
  const masks = unique(records.map((r) => r.mask)), rows = [];
  const cells = groupBy(records, (r) => JSON.stringify([r.line, r.mask, r.pass]));
  for (const line of lines) for (const pass of PASSES) {
    if (!records.some((r) => r.line === line && r.pass === pass)) continue;
    rows.push([element("th", `${line} ${pass}`), ...masks.map((mask) => shareCell(cells.get(JSON.stringify([line, mask, pass])) || [], share))]);
  }
  const made = table(["kernel", ...masks], rows);
  made.className = "shares";
  return made;
}

// Where a mask is the same as a simpler one, a kernel that can do only that one runs, too: this is no merit in its own column.
function shareCell(all, share) {
  const group = all.filter((r) => !r.same || r.status === "wrong"), cell = element("td", null, "heat"), found = group.length ? share(group) : null;
  if (found) {
    cell.textContent = `${(100 * found.value).toFixed(found.value < 0.1 ? 1 : 0)} %`;
    cell.title = found.title;
    cell.style.background = `rgba(var(--heat), ${(0.55 * Math.min(1, found.value)).toFixed(3)})`;
  } else if (group.length) {
    cell.textContent = MARKS[group[0].status] || "";
    cell.title = `${MARK_WORDS[group[0].status] || ""}: ${group[0].reason}`;
    cell.classList.add("mark");
  } else if (all.length) {
    cell.textContent = `= ${all[0].same}`;
    cell.title = `measured only where this mask is the same as ${all[0].same}`;
  }
  return cell;
}

function heatMap(records, lines) {
  const known = records.some((r) => r.mfu !== null);
  const best = new Map([...groupBy(records.filter((r) => r.status === "ok" && !r.same), (r) => JSON.stringify([r.mask, r.pass, r.simulated]))].map(([key, rs]) => [key, Math.max(...rs.map((r) => r.tflops))]));
  const share = (group) => {
    const ok = group.filter((r) => r.status === "ok" && (!known || r.mfu !== null));
    if (!ok.length) return null;
    const top = ok.reduce((a, b) => (b.tflops > a.tflops ? b : a));
    return { value: known ? top.mfu : top.tflops / best.get(JSON.stringify([top.mask, top.pass, top.simulated])), title: `${numberText(top.tflops)} TFLOP/s at ${sizeText(top.seqlen)}` };
  };
  document.getElementById("peak-title").textContent = known ? "Share of peak" : "Share of the fastest";
  document.getElementById("peak-note").textContent = known ? "The best of all lengths at which the mask is not the same as a simpler one, as a part of what the device can do at most." : "The peak of this device is not known, so this is each kernel's best of all lengths at which the mask is not the same as a simpler one, as a part of the fastest kernel's.";
  document.getElementById("heat").replaceChildren(shareTable(records, lines, share));
}

function accuracy(records, lines) {
  const share = (group) => {
    if (group.some((r) => r.status === "wrong")) return null;
    let worst = null;
    for (const r of group) for (const tensor of TENSORS[r.pass] || []) {
      const error = r[`check_${tensor}_error`], allowed = r[`check_${tensor}_allowed`];
      if (error !== null && allowed && (!worst || error / allowed > worst.value)) worst = { value: error / allowed, title: `${tensor} at ${sizeText(r.seqlen)}: error ${numberText(error)}, allowed ${numberText(allowed)}` };
    }
    return worst;
  };
  const wrongFirst = [...records].sort((a, b) => (b.status === "wrong") - (a.status === "wrong"));
  const checked = unique([...lines, ...records.filter((r) => r.status === "wrong").map((r) => r.line)]).sort();
  document.getElementById("errors").replaceChildren(shareTable(wrongFirst, checked, share));
}

function chartsWithLegend(section, records, lines, charts) {
  const made = [], shown = new Set();
  for (const { title, only = () => true, ...how } of charts) {
    const own = records.filter((r) => only(r) && r.status === "ok" && how.value(r) !== null && how.value(r) !== undefined);
    own.forEach((r) => shown.add(r.line));
    if (own.length) made.push(lineChart(title, own, lines, how));
  }
  fillLegend(document.getElementById(`${section}-legend`), lines, lines.filter((line) => shown.has(line)));
  document.getElementById(`${section}-charts`).replaceChildren(...(made.length ? made : [element("p", "Not measured; on a CPU there is no count of it.", "note")]));
}

const TIME = { unit: "ms", value: (r) => r.ms_median, spread: (r) => [r.ms_p20, r.ms_p80] };
const SHAPE = ["device", "heads_q", "heads_kv", "head_dim", "head_dim_v", "dtype", "pass", "seqlen", "deterministic"];

// The dense mask of the same shape, as a level line: once for each share of `sparse`, so that a reader sees where it is crossed.
function denseBeside(sparse) {
  const [like] = sparse, mask = (like.source || "random") === "random" ? "full" : "causal";
  const dense = RECORDS.filter((r) => r.level === "kernel" && r.mask === mask && r.status === "ok" && SHAPE.every((name) => r[name] === like[name]));
  return unique(sparse.map((r) => r.ratio)).flatMap((ratio) => dense.map((r) => {
    const copy = { ...r };
    for (const [name, value] of Object.entries({ command: r.command, ratio, split: `${r.split} on ${mask}` })) derive(copy, name, value);
    return copy;
  }));
}

// Over ranks, and over the share of visible blocks: at the longest length, where there are at least two of them.
function scaling(records) {
  const made = [];
  const add = (own, title, how) => {
    const lines = measured(own, "split");
    if (!lines.length) return;
    const chart = lineChart(`${own[0].family}, ${own[0].pass}, ${sizeText(own[0].seqlen)}, ${title}`, own, lines, { ...how, series: "split" });
    chart.append(element("div", null, "legend"));
    fillLegend(chart.lastChild, lines);
    made.push(chart);
  };
  for (const x of ["ranks", "ratio"]) {
    const all = records.filter((r) => r[x] !== null && r[x] !== undefined);
    for (const [, group] of groupBy(all, (r) => JSON.stringify([r.family, r.pass]))) {
      const longest = Math.max(...group.map((r) => r.seqlen)), own = group.filter((r) => r.seqlen === longest);
      if (unique(own.map((r) => r[x])).length < 2) continue;
      add(own, x === "ranks" ? "over ranks" : "over the visible share", { ...SPEED, x });
      const dense = x === "ratio" ? denseBeside(own) : [];
      if (dense.length) add([...own, ...dense], "beside the dense mask", { ...TIME, x });
    }
  }
  document.getElementById("scaling").hidden = document.getElementById("to-scaling").hidden = !made.length;
  document.getElementById("scaling-charts").replaceChildren(...made);
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
  scaling(records);
  heatMap(records, lines);
  accuracy(records, lines);
  const most = (values) => Math.max(...values), pattern = (r) => (DATA.patterns.includes(r.mask) ? r.problem : ""); // the size of blocks matters to memory
  chartsWithLegend("memory", records, lines, unique(records.map(pattern)).flatMap((name) => PASSES.map((pass) => ({
    title: name ? `${name}, ${pass}` : pass, only: (r) => r.pass === pass && pattern(r) === name, unit: "GiB", log: true, value: (r) => r.peak_gib || null, join: most }))));
  chartsWithLegend("preparing", records, lines, [
    { title: "mask and plan", unit: "ms", log: true, value: (r) => (r.build_ms === null ? null : r.build_ms + (r.plan_ms || 0)) },
    { title: "first call (compiling)", unit: "ms", log: true, value: (r) => (r.compile_ms > 0 ? r.compile_ms : null) },
  ]);
}
