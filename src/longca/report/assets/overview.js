"use strict";
// Who is ahead on each mask, and whether that means anything.
const EQUAL = DATA.practical; // a smaller difference is none, as `longca compare` has it

const sameAs = (r) => (r.same ? ` (as ${r.same})` : "");
const aheadText = (times) => `${times.toFixed(times < 1.1 ? 3 : 2)}×`; // 1.03 would look like 3 %
const withNoise = ({ line, noisy }) => (noisy ? `${line} ~` : line);

// Lines at one length, the fastest first.
function ranking(records) {
  const rank = ([line, rs]) => ({ line, speed: median(rs.map((r) => r.tflops)), peak: median(rs.map((r) => r.mfu).filter((v) => v !== null)), noisy: rs.some((r) => r.noisy) });
  return [...groupBy(records, "line")].map(rank).sort((a, b) => b.speed - a.speed);
}

function headline(records) {
  const rows = [];
  // what was simulated is never ahead of, or behind, what was measured
  for (const [, group] of groupBy(records, (r) => JSON.stringify([r.problem, r.simulated]))) for (const pass of PASSES) {
    const ok = group.filter((r) => r.pass === pass && r.status === "ok");
    if (!ok.length) continue;
    const longest = Math.max(...ok.map((r) => r.seqlen)), ranked = ranking(ok.filter((r) => r.seqlen === longest)), [best] = ranked;
    const equal = ranked.filter(({ speed }) => best.speed <= speed * (1 + EQUAL)), next = ranked[equal.length];
    const fastest = breakable(equal.map(withNoise).join(", ") + (equal.length > 1 ? ` within\u00a0${100 * EQUAL}\u00a0%` : ""), "td");
    fastest.className = "names";
    rows.push([breakable(group[0].problem, "td"), pass, sizeText(longest) + sameAs(ok.find((r) => r.seqlen === longest)), fastest, numberText(best.speed), best.peak === null ? "" : `${(100 * best.peak).toFixed(0)} %`,
      next ? `${aheadText(best.speed / next.speed)} ${withNoise(next)}` : equal.length > 1 ? "no other" : "the only one"]);
  }
  document.getElementById("headline").replaceChildren(table(["mask", "pass", "length", "fastest", "TFLOP/s", "of peak", "ahead of"], rows));
}
