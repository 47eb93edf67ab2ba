"use strict";
// Tables, and among them those of shares between 0 and 1, shaded by their value.

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

// `rows` are [name, cells]; a cell is null, a text, [record with a share, share, ...] or [record that tells why there is none].
function shareTable(columns, rows, { title, note = () => null }) {
  const made = table(["kernel", ...columns], rows.map(([name, cells]) => [element("th", name), ...cells.map((cell) => shareCell(cell, title, note))]));
  made.className = "shares";
  return made;
}

function shareCell(found, title, note) {
  const cell = element("td", null, "heat");
  if (typeof found === "string") {
    cell.textContent = found;
    cell.title = `measured only where this mask is the same as ${found.slice(2)}`;
  } else if (found && found.length === 1) {
    const { letter, words } = statusOf(found[0]);
    cell.textContent = letter;
    cell.title = `${words}: ${get(found[0], "reason")}`;
    cell.classList.add("mark");
  } else if (found) {
    cell.textContent = shareText(found[1]);
    cell.title = title(found);
    if (note(found)) cell.append(element("small", note(found)));
    cell.style.background = `rgba(var(--heat), ${(0.55 * Math.min(1, found[1])).toFixed(3)})`;
  }
  return cell;
}

function headline(number) {
  const rows = DATA.headlines.filter(({ setting }) => setting === number).map(({ cells }) => cells.map((text, i) => {
    const cell = i === 0 || i === 3 ? breakable(text.replace(/ within (\d+) %$/, " within\u00a0$1\u00a0%"), "td") : text;
    if (i === 3) cell.className = "names";
    return cell;
  }));
  document.getElementById("headline").replaceChildren(table(DATA.headlineColumns, rows));
}

const BEST = "best"; // of all lengths

function peak({ known, panels, start, tables }) {
  const rows = new Map(tables), lengths = tables.map(([name]) => name).filter((name) => name !== BEST);
  document.getElementById("peak-title").textContent = known ? "Share of peak" : "Share of the fastest";
  choose("peak-length", [option(BEST, "the best of all"), ...lengths.map((n) => option(n, sizeText(Number(n))))], start, (length) => {
    const of = known ? "of what the device can do at most" : "of the fastest kernel's; the peak of this device is not known";
    const at = length === BEST ? "The best of all lengths at which the mask is not the same as a simpler one, with that length below it" : `At ${sizeText(Number(length))}`;
    document.getElementById("peak-note").textContent = `${at}, as a part ${of}. Letters as in Speed; point at one to see why.`;
    const title = ([record]) => `${numberText(get(record, "tflops"))} TFLOP/s at ${sizeText(get(record, "seqlen"))}`;
    const note = ([record]) => (length === BEST ? sizeText(get(record, "seqlen")) : null);
    document.getElementById("heat").replaceChildren(shareTable(panels, rows.get(length), { title, note }));
  });
}

function errorTitle([record, , tensor]) {
  const same = get(record, "same"), [error, allowed] = ["error", "allowed"].map((part) => numberText(get(record, `check_${tensor}_${part}`)));
  return `${tensor} at ${sizeText(get(record, "seqlen"))}: error ${error}, tolerance ${allowed}` + (same ? `; the mask is the same as ${same} here` : "");
}

function accuracy({ panels, table: rows, masks }) {
  const note = ([record, , tensor]) => `${tensor} ${get(record, `check_${tensor}_error`).toExponential(1)}`;
  document.getElementById("errors").replaceChildren(shareTable(panels, rows, { title: errorTitle }));
  choose("errors-mask", masks.map(([name, worst]) => option(name, `${name}: ${worst}`)), masks[0]?.[0], (chosen) => {
    const found = masks.find(([name]) => name === chosen), [, , lengths, own] = found || ["", "", [], []];
    document.getElementById("errors-lengths").replaceChildren(shareTable(lengths.map(sizeText), own, { title: errorTitle, note }));
  });
}
