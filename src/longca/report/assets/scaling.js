"use strict";
// Over ranks, and over the share of blocks that is visible, beside the dense mask.
const TIME = { unit: "ms", value: (r) => r.ms_median, spread: (r) => [r.ms_p20, r.ms_p80] };
const SHAPE = ["device", "heads_q", "heads_kv", "head_dim", "head_dim_v", "dtype", "pass", "seqlen", "deterministic"];
const DENSE = new Set(); // names of dense masks with a line, in the order of their dashes
const MOST_DENSE = 3; // lines; of more, those that block patterns find it hardest to beat

// The dense mask that the run of `sparse` itself measured beside its patterns, as level lines: once for each share, so that a reader sees where it is crossed.
function denseBeside(sparse) {
  const [like] = sparse, mask = (like.source || "random") === "random" ? "full" : "causal", homes = new Set(sparse.flatMap((r) => r.homes));
  const beside = (r) => r.level === "kernel" && r.mask === mask && r.status === "ok" && r.homes.some((home) => homes.has(home)) && SHAPE.every((name) => r[name] === like[name]);
  const dense = RECORDS.filter(beside).sort((a, b) => a.ms_median - b.ms_median), lines = unique(dense.map((r) => r.split)).slice(0, MOST_DENSE);
  for (const line of lines) {
    const name = `${line} on ${mask}`;
    DENSE.add(name);
    LOOKS.set(name, { number: lookOf(line).number, dense: [...DENSE].indexOf(name) });
  }
  return unique(sparse.map((r) => r.ratio)).flatMap((ratio) => dense.filter((r) => lines.includes(r.split)).map((r) => {
    const copy = { ...r };
    for (const [name, value] of Object.entries({ command: r.command, ratio, split: `${r.split} on ${mask}` })) derive(copy, name, value);
    return copy;
  }));
}

// At the longest length, where there are at least two places to compare.
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
