"use strict";
// The table of all records: filter, sort, more rows on demand, a record's details, and CSV.
const FIELDS = [["line", "kernel"], ["problem", "mask"], ["seqlen", "length"], ["pass", "pass"], ["heads", "heads"], ["dtype", "dtype"], ["status", "status"],
  ["tflops", "TFLOP/s"], ["ms_median", "ms"], ["tokens_s", "tokens/s"], ["mfu", "of peak"], ["peak_gib", "GiB"], ["compile_ms", "compile ms"], ["seed", "seed"], ["device", "device"]];
const ONCE = new Set(["heads", "dtype", "seed", "device"]); // said above the table where all records have the same
const NUMBERS = new Set(["seqlen", "tflops", "ms_median", "tokens_s", "mfu", "peak_gib", "compile_ms", "seed"]);
const PAGE = 100;
const view = { sorted: "", down: false, shown: PAGE, rows: RECORDS };

for (const r of RECORDS) {
  derive(r, "heads", `${r.heads_q}:${r.heads_kv}×${r.head_dim}${r.head_dim_v === r.head_dim ? "" : `/${r.head_dim_v}`}`);
  const words = FIELDS.map(([name]) => (name === "seqlen" ? `${r.seqlen} ${sizeText(r.seqlen)}` : r[name] ?? ""));
  derive(r, "words", [...words, r.mask, r.kernel, r.variant ?? "", r.reason, r.params].join(" ").toLowerCase().split(/\s+/));
}

const COLUMNS = FIELDS.filter(([name]) => !ONCE.has(name) || unique(RECORDS.map((r) => r[name])).length > 1);

// Every word of the filter must begin a word of the record, so that "fwd" is not found in "fwd+bwd" by "bwd".
function matches(r, wanted) {
  return wanted.every((word) => r.words.some((own) => own.startsWith(word)));
}

function update() {
  const wanted = document.getElementById("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  view.rows = RECORDS.filter((r) => matches(r, wanted));
  if (view.sorted) {
    const sign = view.down ? -1 : 1, name = view.sorted;
    view.rows.sort((a, b) => {
      const [x, y] = [a[name], b[name]];
      if (x === y) return 0;
      if (x === null || x === undefined) return 1; // what has no value comes last either way
      if (y === null || y === undefined) return -1;
      return sign * (typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y)));
    });
  }
  showRows();
}

function cellText(r, name) {
  if (name === "seqlen") return sizeText(r.seqlen);
  if (name === "mfu" && r.mfu !== null) return `${(100 * r.mfu).toFixed(0)} %`;
  if (name === "tokens_s" && r.tokens_s !== null) return String(Math.round(r.tokens_s));
  return numberText(r[name]);
}

function showRows() {
  const body = document.querySelector("#table tbody");
  body.replaceChildren(...view.rows.slice(0, view.shown).map((r) => {
    const line = element("tr", null, "row");
    line.tabIndex = 0;
    line.append(...COLUMNS.map(([name]) => (NUMBERS.has(name) ? element("td", cellText(r, name), "number") : breakable(cellText(r, name), "td"))));
    if (r.reason) line.title = r.reason;
    line.addEventListener("click", () => showDetail(r));
    line.addEventListener("keydown", (event) => { if (event.key === "Enter") showDetail(r); });
    return line;
  }));
  document.getElementById("shown").textContent = `${view.rows.length} of ${RECORDS.length} records`;
  document.getElementById("more").hidden = view.rows.length <= view.shown;
}

function showDetail(r) {
  const box = document.getElementById("detail");
  const parts = [element("h3", `${r.line} · ${r.mask} · ${sizeText(r.seqlen)} · ${r.pass}`), fieldList(r)];
  if (r.command) parts.push(element("p", r.ranks > 1 ? "To measure it again (on several nodes under torchrun or srun):" : "To measure it again:"), element("pre", r.command));
  else parts.push(element("p", `Simulated on ${r.simulated}: nobody measured it.`));
  box.replaceChildren(...parts);
  box.hidden = false;
  box.focus();
  box.scrollIntoView({ block: "nearest" });
}

function csvText(rows) {
  const quote = (value) => {
    const text = value === null || value === undefined ? "" : String(value);
    return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return [DATA.columns, ...rows.map((r) => DATA.columns.map((name) => r[name]))].map((row) => row.map(quote).join(",")).join("\n") + "\n";
}

function download() {
  const link = element("a");
  link.href = URL.createObjectURL(new Blob([csvText(view.rows)], { type: "text/csv" }));
  link.download = "longca.csv";
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

function setUpTable() {
  const head = element("tr");
  for (const [name, title] of COLUMNS) {
    const cell = element("th", null, NUMBERS.has(name) ? "number" : ""), button = element("button", title);
    button.type = "button";
    cell.scope = "col";
    button.addEventListener("click", () => {
      [view.sorted, view.down] = [name, view.sorted === name ? !view.down : NUMBERS.has(name)];
      for (const other of head.children) other.removeAttribute("aria-sort");
      cell.setAttribute("aria-sort", view.down ? "descending" : "ascending");
      for (const [i, [, text]] of COLUMNS.entries()) head.children[i].firstChild.textContent = text + (COLUMNS[i][0] === name ? (view.down ? " ▼" : " ▲") : "");
      update();
    });
    cell.append(button);
    head.append(cell);
  }
  document.querySelector("#table thead").append(head);
  const same = FIELDS.filter((field) => !COLUMNS.includes(field)).map(([name, title]) => `${title} ${cellText(RECORDS[0], name)}`);
  document.getElementById("once").textContent = same.length ? `All of them: ${same.join(", ")}.` : "";
  document.getElementById("filter").addEventListener("input", () => { view.shown = PAGE; update(); });
  document.getElementById("more").addEventListener("click", () => { view.shown += 5 * PAGE; showRows(); });
  document.getElementById("csv").addEventListener("click", download);
  update();
}
