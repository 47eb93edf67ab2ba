// The board kernel × mask: what was measured, errors, and shares.
const BOARDS = [
  ["coverage", "what was measured"],
  ["error", "worst error as a share of the tolerance"],
  ["peak", "share of the peak"],
  ["limit", "share of the limit"],
  ["close", "share of the fastest"],
];
const STATE_MARKS = new Map([
  ["measured", "●"],
  ["simulated", "○"],
  ["measured in part", "◐"],
  ["simulated in part", "◌"],
  ["wrong", "✗"],
  ["failed", "!"],
  ["unsupported", "–"],
  ["not run", ""],
]);
const stateClass = (words) => words.split(" ").join("-");

function coverageCell(entry) {
  const words = entry ? DATA.states[entry.state] : "not run",
    cell = element(
      "td",
      entry && entry.timed < entry.places && entry.timed ? `${entry.timed}/${entry.places}` : STATE_MARKS.get(words),
      `state ${stateClass(words)}`,
    );
  cell.title = entry
    ? `${entry.line} on ${entry.panel}: ${words}${entry.timed ? `, a time at ${entry.timed} of ${entry.places}` : ""}`
    : "not run";
  return cell;
}

function shareCell(share, records, title, note) {
  const cell = element("td", null, "heat");
  if (share === null || share === undefined) return cell;
  const link = button(shareText(share), () => showReceipts(records), "link");
  link.title = title;
  cell.append(link);
  if (note) cell.append(element("small", note));
  cell.style.setProperty("--part", `${Math.round(75 * Math.min(1, share))}%`);
  return cell;
}

function placeCell(measure, cell) {
  if (!cell) return element("td", "", "heat");
  const value = measure.value(cell),
    records = recordsOf(cell),
    same = records.length ? get(records[0], "same") : null;
  if (same) return Object.assign(element("td", `= ${same}`, "heat quiet"), { title: `At this length the mask is the same as ${same}` });
  if (value === null)
    return Object.assign(
      element("td", cell.failed < 0 ? "" : statusOf(cell.failed).never ? "–" : statusOf(cell.failed).words, "heat quiet"),
      { title: cell.failed < 0 ? "" : `${statusOf(cell.failed).words}: ${get(cell.failed, "reason")}` },
    );
  const note = measure.key === "error" ? cell.tensor : null;
  return shareCell(value, measure.key === "error" ? [cell.worst] : records, `${cell.line} on ${cell.panel}`, note);
}

function boardCell(entry, cell) {
  if (state.board === "coverage") return coverageCell(entry);
  if (state.board === "error" && !state.place) {
    if (!entry || entry.error === null)
      return entry && DATA.states[entry.state] === "wrong" ? coverageCell(entry) : element("td", "", "heat");
    if (DATA.states[entry.state] === "wrong") return coverageCell(entry);
    return shareCell(entry.error, [entry.worst], `${entry.line} on ${entry.panel}: ${entry.tensor}`, entry.tensor);
  }
  return placeCell(
    MEASURES.find(({ key }) => key === state.board),
    cell,
  );
}

function boardEntries() {
  return setting()
    .board.filter(([, , pass]) => pass === passNow() || passNow() === "fwd+bwd")
    .map(([line, panel, pass, mark, timed, places, error, tensor, worst]) => ({
      line,
      panel,
      pass,
      state: mark,
      timed,
      places,
      error,
      tensor,
      worst,
    }));
}

function drawBoard() {
  const { axis, panels } = setting(),
    cells = cellsNow(),
    entries = boardEntries(),
    places = unique(cells.map(({ x }) => x)).sort((a, b) => a - b);
  const found = new Map(),
    at =
      state.place && places.map(String).includes(state.place)
        ? Number(state.place)
        : places.includes(setting().at)
          ? setting().at
          : places.at(-1);
  const key = (line, panel) => JSON.stringify([line, panel]);
  for (const entry of entries) {
    const other = found.get(key(entry.line, entry.panel));
    if (!other || worse(entry, other)) found.set(key(entry.line, entry.panel), entry);
  }
  const here = new Map(cells.filter(({ x }) => x === at).map((cell) => [key(cell.line, cell.panel), cell]));
  const lines = unique([...orderedLines(), ...entries.map(({ line }) => line)]);
  if (state.board === "error") lines.sort((a, b) => worstOf(entries, b) - worstOf(entries, a));
  const made = element("table", null, "board"),
    head = element("tr");
  head.append(element("th", setting().line), ...panels.map(([panel]) => breakable(panel, "th")));
  made.append(element("thead"), element("tbody"));
  made.tHead.append(head);
  for (const line of lines) {
    const row = element("tr"),
      name = element("th");
    name.scope = "row";
    name.append(swatch(line), breakable(nameText(line)));
    row.append(name, ...panels.map(([panel]) => boardCell(found.get(key(line, panel)), here.get(key(line, panel)))));
    made.tBodies[0].append(row);
  }
  document.getElementById("board-table").replaceChildren(made);
  bindSelect(
    "board-mode",
    "board",
    BOARDS.filter(
      ([mode]) =>
        ["coverage", "error"].includes(mode) || cells.some((cell) => MEASURES.find(({ key: own }) => own === mode).value(cell) !== null),
    ).map(([mode, text]) => option(mode, text)),
    state.board,
  );
  const anywhere = state.board === "error" ? [option("", "the worst of all")] : [];
  bindSelect(
    "board-place",
    "place",
    [...anywhere, ...places.map((x) => option(String(x), placeText(axis, x)))],
    state.board === "error" && !state.place ? "" : String(at),
  );
  document.getElementById("board-place-label").hidden = state.board === "coverage";
  document.getElementById("board-key").replaceChildren(
    ...(state.board === "coverage"
      ? DATA.states.map((words) => {
          const entry = element("span");
          entry.append(element("span", STATE_MARKS.get(words), `state ${stateClass(words)}`), words);
          return entry;
        })
      : []),
  );
  watchOverflow();
}

const WORST_FIRST = ["wrong", "failed", "measured in part", "simulated in part", "not run", "unsupported", "simulated", "measured"];
const worse = (entry, other) =>
  WORST_FIRST.indexOf(DATA.states[entry.state]) < WORST_FIRST.indexOf(DATA.states[other.state]) || (entry.error ?? 0) > (other.error ?? 0);
const worstOf = (entries, line) =>
  Math.max(
    -1,
    ...entries
      .filter((entry) => entry.line === line)
      .map((entry) => (DATA.states[entry.state] === "wrong" ? Infinity : (entry.error ?? -1))),
  );
