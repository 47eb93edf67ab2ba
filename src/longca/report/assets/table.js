// The table of all records: filter, sort, more rows on demand, a record's details, and CSV.
const ONE_UNIT = unique(DATA.settings.map(({ unit }) => unit[0])).length === 1; // else each number has its own
const SHOWN = [
  ["line", "kernel"],
  ["panel", "mask"],
  ["seqlen", "length"],
  ["pass", "pass"],
  ["heads", "heads"],
  ["dtype", "dtype"],
  ["status", "status"],
  ["tflops", ONE_UNIT ? DATA.settings[0].unit[0] : "speed"],
  ["ms_median", "ms"],
  ["tokens_s", "tokens/s"],
  ["mfu", "of peak"],
  ["peak_gib", "GiB"],
  ["compile_ms", "compile ms"],
  ["seed", "seed"],
  ["device", "device"],
];
const ONCE = new Set(["heads", "dtype", "seed", "device"]); // said above the table where all records have the same
const NUMBERS = new Set(["seqlen", "tflops", "ms_median", "tokens_s", "mfu", "peak_gib", "compile_ms", "seed"]);
const BREAKABLE = new Set(["line", "panel"]);
const SEARCHED = [...SHOWN.map(([name]) => name), "mask", "kernel", "variant", "reason", "params"];
const PAGE = 100;
const ALL = [...Array(COUNT).keys()];
const view = { shown: PAGE, rows: ALL };
const differs = (name) => unique(columnOf(name) ?? []).length > 1;
const COLUMNS = SHOWN.filter(([name]) => !ONCE.has(name) || differs(name));

// Every word of the filter must begin a word of the record, so that "bwd" does not find "fwd+bwd". Each text is looked at once.
function matching(word) {
  const known = new Map(),
    begins = (text) => text.toLowerCase().split(/\s+/).some((own) => own.startsWith(word)),
    fits = (text) => known.get(text) ?? known.set(text, begins(text)).get(text);
  const textOf = (name, record) => (name === "seqlen" ? `${get(record, name)} ${sizeText(get(record, name))}` : String(get(record, name) ?? ""));
  return (record) => SEARCHED.some((name) => fits(textOf(name, record)));
}

// The column that sorts the table, and if its greatest value comes first: "-tflops" in the address. A name that is no column sorts nothing.
function sortNow() {
  const [, minus, name] = /^(-?)(.*)$/s.exec(state.sort);
  return COLUMNS.some(([own]) => own === name) ? { name, down: minus === "-" } : { name: null, down: false };
}

// The first click on a number sorts the greatest to the top; another click turns the order round.
function sortBy(column) {
  const { name, down } = sortNow(),
    turned = name === column ? !down : NUMBERS.has(column);
  setState({ sort: (turned ? "-" : "") + column });
}

function markSorted({ name, down }) {
  for (const [i, cell] of [...document.querySelector("#table thead tr").cells].entries()) {
    const [own, title] = COLUMNS[i];
    if (own === name) cell.setAttribute("aria-sort", down ? "descending" : "ascending");
    else cell.removeAttribute("aria-sort");
    cell.firstChild.textContent = title + (own !== name ? "" : down ? " ▼" : " ▲");
  }
}

function updateTable() {
  const field = document.getElementById("filter"),
    wanted = state.filter.toLowerCase().split(/\s+/).filter(Boolean).map(matching),
    { name, down } = sortNow();
  if (field.value !== state.filter) field.value = state.filter;
  view.rows = ALL.filter((record) => wanted.every((matches) => matches(record)));
  markSorted({ name, down });
  if (name) {
    const sign = down ? -1 : 1;
    view.rows.sort((a, b) => {
      const [x, y] = [get(a, name), get(b, name)];
      if (x === y) return 0;
      if (x === null || x === undefined) return 1; // what has no value comes last either way
      if (y === null || y === undefined) return -1;
      return sign * (typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y)));
    });
  }
  showRows();
}

function cellText(record, name) {
  const value = get(record, name);
  if (name === "seqlen") return sizeText(value);
  if (name === "tflops" && value !== null) {
    const unit = unitOfRecord(record);
    return numberText(inUnit(value, unit)) + (ONE_UNIT ? "" : ` ${unit[0]}`);
  }
  if (name === "mfu" && value !== null) return `${(100 * value).toFixed(0)} %`;
  if (name === "tokens_s" && value !== null) return Math.round(value).toLocaleString("en-US");
  return numberText(value);
}

function showRows() {
  const body = document.querySelector("#table tbody");
  body.replaceChildren(
    ...view.rows.slice(0, view.shown).map((record) => {
      const line = element("tr", null, "row");
      line.tabIndex = 0;
      line.append(
        ...COLUMNS.map(([name]) =>
          BREAKABLE.has(name)
            ? breakable(cellText(record, name), "td")
            : element("td", cellText(record, name), NUMBERS.has(name) ? "number" : ""),
        ),
      );
      if (get(record, "reason")) line.title = get(record, "reason");
      line.addEventListener("click", () => showReceipts([record]));
      line.addEventListener("keydown", (event) => {
        if (event.key === "Enter") showReceipts([record]);
      });
      return line;
    }),
  );
  document.getElementById("shown").textContent = `${view.rows.length} of ${COUNT} records`;
  document.getElementById("more").hidden = view.rows.length <= view.shown;
  watchOverflow();
}

function csvText(records) {
  const quote = (value) => {
    const text =
      value === null || value === undefined ? "" : typeof value === "string" && /^[=+\-@\t\r]/.test(value) ? `'${value}` : String(value); // no formula
    return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  const names = [...FIELDS.keys()];
  return (
    [names, ...records.map((record) => names.map((name) => get(record, name)))].map((row) => row.map(quote).join(",")).join("\n") + "\n"
  );
}

function download() {
  const url = URL.createObjectURL(new Blob([csvText(view.rows)], { type: "text/csv" }));
  saveAs(url, "longca.csv");
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

function setUpTable() {
  const head = element("tr");
  for (const [name, title] of COLUMNS) {
    const cell = element("th", null, NUMBERS.has(name) ? "number" : "");
    cell.scope = "col";
    cell.append(button(title, () => sortBy(name)));
    head.append(cell);
  }
  document.querySelector("#table thead").append(head);
  const same = SHOWN.filter((field) => !COLUMNS.includes(field)).map(([name, title]) => `${title} ${cellText(0, name)}`);
  document.getElementById("once").textContent = same.length ? `All of them: ${same.join(", ")}.` : "";
  document.getElementById("filter").addEventListener("input", (event) => {
    view.shown = PAGE;
    setState({ filter: event.target.value });
  });
  document.getElementById("more").addEventListener("click", () => {
    view.shown += 5 * PAGE;
    showRows();
  });
  document.getElementById("csv").addEventListener("click", download);
  updateTable();
}
