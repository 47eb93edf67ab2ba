"use strict";
// Tables, and among them those of shares between 0 and 1, shaded by how much they are.

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

const shareText = (value) => `${(100 * value).toFixed(value < 0.1 ? 1 : 0)} %`;

// A row per kernel and pass, a column per `column` of the records. `share` gives {value, title, note} of a cell's records, or null; `order` sorts the rows
// by the share of all their records, the largest first; `sameToo` counts lengths at which a mask is the same as a simpler one.
function shareTable(records, lines, { share, column = "mask", columns = unique(records.map((r) => r[column])), label = String, order = null, sameToo = false }) {
  const rows = [], cells = groupBy(records, (r) => JSON.stringify([r.line, r[column], r.pass]));
  for (const line of lines) for (const pass of PASSES) {
    const own = records.filter((r) => r.line === line && r.pass === pass);
    if (!own.length) continue;
    const row = [element("th", `${line} ${pass}`), ...columns.map((name) => shareCell(cells.get(JSON.stringify([line, name, pass])) || [], share, sameToo))];
    rows.push({ row, rank: order ? order(sameToo ? own : counted(own)) : 0 });
  }
  const made = table(["kernel", ...columns.map(label)], rows.sort((a, b) => b.rank - a.rank).map(({ row }) => row));
  made.className = "shares";
  return made;
}

// Where a mask is the same as a simpler one, a kernel that can do only that one runs, too: this is no merit in its own column.
const counted = (records) => records.filter((r) => !r.same || r.status === "wrong");

function shareCell(all, share, sameToo) {
  const group = sameToo ? all : counted(all), cell = element("td", null, "heat"), found = group.length ? share(group) : null;
  if (found) {
    cell.textContent = shareText(found.value);
    cell.title = found.title;
    if (found.note) cell.append(element("small", found.note));
    cell.style.background = `rgba(var(--heat), ${(0.55 * Math.min(1, found.value)).toFixed(3)})`;
  } else if (group.length) {
    const failed = untimed(group) || group[0];
    cell.textContent = MARKS[failed.status] || "";
    cell.title = `${MARK_WORDS[failed.status] || ""}: ${failed.reason}`;
    cell.classList.add("mark");
  } else if (all.length) {
    cell.textContent = `= ${all[0].same}`;
    cell.title = `measured only where this mask is the same as ${all[0].same}`;
  }
  return cell;
}

const BEST = "best"; // of all lengths

// The longest of the lengths at which most masks have a time.
function commonLength(records) {
  const masks = [...groupBy(records.filter((r) => r.status === "ok"), "seqlen")].map(([length, group]) => ({ length, count: unique(group.map((r) => r.problem)).length }));
  return masks.sort((a, b) => b.count - a.count || b.length - a.length)[0]?.length;
}

function peak(records, lines) {
  const select = document.getElementById("peak-length"), before = select.value, option = (value, text) => Object.assign(element("option", text), { value });
  const lengths = unique(records.filter((r) => r.status === "ok").map((r) => r.seqlen)).sort((a, b) => a - b);
  select.replaceChildren(option(BEST, "the best of all"), ...lengths.map((n) => option(String(n), sizeText(n))));
  select.value = [...select.options].some(({ value }) => before && value === before) ? before : String(commonLength(records) ?? BEST);
  select.onchange = () => heatMap(records, lines, select.value);
  select.onchange();
}

function heatMap(all, lines, length) {
  // no speed of a kernel that may be wrong, at whichever length that was found
  const records = length === BEST ? all : all.filter((r) => r.seqlen === Number(length) || r.status === "wrong"), known = records.some((r) => r.mfu !== null);
  const best = new Map([...groupBy(records.filter((r) => r.status === "ok" && !r.same), (r) => JSON.stringify([r.problem, r.pass, r.simulated]))].map(([key, rs]) => [key, Math.max(...rs.map((r) => r.tflops))]));
  const share = (group) => {
    const ok = group.filter((r) => r.status === "ok" && (!known || r.mfu !== null));
    if (!ok.length || group.some((r) => r.status === "wrong")) return null;
    const top = ok.reduce((a, b) => (b.tflops > a.tflops ? b : a));
    return { value: known ? top.mfu : top.tflops / best.get(JSON.stringify([top.problem, top.pass, top.simulated])),
      title: `${numberText(top.tflops)} TFLOP/s at ${sizeText(top.seqlen)}`, note: length === BEST ? sizeText(top.seqlen) : null };
  };
  document.getElementById("peak-title").textContent = known ? "Share of peak" : "Share of the fastest";
  const of = known ? "of what the device can do at most" : "of the fastest kernel's; the peak of this device is not known";
  const at = length === BEST ? "The best of all lengths at which the mask is not the same as a simpler one, with that length below it" : `At ${sizeText(Number(length))}`;
  document.getElementById("peak-note").textContent = `${at}, as a part ${of}. Letters as in Speed; point at one to see why.`;
  document.getElementById("heat").replaceChildren(shareTable(records, lines, { share, column: "problem", columns: unique(all.map((r) => r.problem)) }));
}
