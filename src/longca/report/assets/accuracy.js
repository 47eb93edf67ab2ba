"use strict";
// Errors against fp64 as a part of what is allowed: the worst of all lengths per mask, and for one mask each length; the worst first.

// The worst tensor of some records, or null where one of them failed its check or none was checked.
function worstOf(group) {
  if (group.some((r) => r.status === "wrong")) return null;
  let worst = null;
  for (const r of group) for (const tensor of TENSORS[r.pass] || []) {
    const error = r[`check_${tensor}_error`], allowed = r[`check_${tensor}_allowed`];
    if (error === null || !allowed || (worst && error / allowed <= worst.value)) continue;
    worst = { value: error / allowed, note: `${tensor} ${error.toExponential(1)}`, title: `${tensor} at ${sizeText(r.seqlen)}: error ${numberText(error)}, allowed ${numberText(allowed)}` + (r.same ? `; the mask is the same as ${r.same} here` : "") };
  }
  return worst;
}

const badness = (group) => (group.some((r) => r.status === "wrong") ? Infinity : worstOf(group)?.value ?? -1);

function accuracy(records, lines) {
  const checked = unique([...lines, ...records.filter((r) => r.status === "wrong").map((r) => r.line)]).sort();
  const share = (group) => { const worst = worstOf(group); return worst && { ...worst, note: null }; };
  document.getElementById("errors").replaceChildren(shareTable(records, checked, { share, columns: unique(records.map((r) => r.mask)), order: badness }));

  const masks = [...groupBy(records, "problem")].map(([name, group]) => ({ name, group, bad: badness(group) })).filter(({ bad }) => bad >= 0).sort((a, b) => b.bad - a.bad);
  const select = document.getElementById("errors-mask"), before = select.value;
  select.replaceChildren(...masks.map(({ name, bad }) => Object.assign(element("option", `${name}: ${bad === Infinity ? "wrong" : shareText(bad)}`), { value: name })));
  if (masks.some(({ name }) => name === before)) select.value = before;
  select.onchange = () => errorsByLength(masks.find(({ name }) => name === select.value)?.group || [], checked);
  select.onchange();
}

function errorsByLength(records, lines) {
  const columns = unique(records.map((r) => r.seqlen)).sort((a, b) => a - b), timed = lines.filter((line) => records.some((r) => r.line === line && !neverRan(r)));
  const made = shareTable(records, timed, { share: worstOf, column: "seqlen", columns, label: sizeText, order: badness, sameToo: true });
  document.getElementById("errors-lengths").replaceChildren(made);
}
