// The first screen: for each mask and length the fastest kernel, its speed, how far ahead it is, and its share of the limit.
const tints = (limited) => [
  ["kernel", `fastest ${setting().line}`],
  ...(limited ? [["limit", "share of the limit"]] : []),
  ["ahead", "lead over the next"],
];

// 0 to 1: how strong the colour of a cell is.
function strength(entry) {
  if (state.tint === "limit") return entry.limit === null ? 0 : Math.min(1, Math.max(0, (entry.limit - 0.3) / 0.7));
  return entry.ahead === null ? 0 : Math.min(1, (entry.ahead - 1) / 1);
}

const aheadText = ({ ahead }) => `${ahead.toFixed(ahead < 1.1 ? 3 : 2)}×`; // 1.03 would look like 3 %

function leadWords(entry) {
  if (entry.ahead === null) return entry.ranked > 1 ? "no other is slower" : "the only one";
  return `${aheadText(entry)} ${nameText(entry.next)}`;
}

function answerCell(entry) {
  const cell = element("td"),
    made = button(null, () => showReceipts(entry.records, answerWords(entry)), "answer");
  const [best, ...equal] = entry.fastest,
    figures = element("span", null, "figures");
  const figure = element("span", figureText(speedOf(entry.tflops)), "figure");
  const marks = (entry.noisy ? "~" : "") + (entry.few ? "?" : "");
  if (marks) figure.append(element("i", marks));
  figures.append(
    figure,
    element("small", entry.same ? `as ${entry.same}` : entry.limit === null ? "" : shareText(entry.limit)),
  );
  made.append(
    breakable(nameText(best), "b"),
    figures,
    ...(entry.masks > 1 ? [element("small", rangeText(entry.ends.map(speedOf)))] : []),
    element("small", equal.length ? `= ${equal.length === 1 ? nameText(equal[0]) : `${equal.length} others`}` : leadWords(entry), "lead"),
  );
  made.title = answerWords(entry);
  if (state.tint === "kernel") made.style.setProperty("--c", lookOf(entry.colour).colour);
  else made.style.setProperty("--c", "var(--heat)");
  made.style.setProperty("--part", state.tint === "kernel" ? "20%" : `${Math.round(6 + 64 * strength(entry))}%`);
  if (entry.simulated) made.classList.add("simulated");
  if (entry.limit !== null) made.style.setProperty("--limit", `${Math.min(100, 100 * entry.limit)}%`);
  cell.append(made);
  return cell;
}

function answerWords(entry) {
  const [best, ...equal] = entry.fastest;
  const also = equal.length ? `, as fast: ${equal.map(nameText).join(", ")}` : "";
  const lead = entry.ahead === null ? "" : `; ${aheadText(entry)} the speed of ${nameText(entry.next)}`;
  const limit = entry.limit === null ? "" : `; ${shareText(entry.limit)} of the speed that tiles allow`;
  const ends = entry.masks > 1 ? ` (over ${entry.masks} seeds, ${rangeText(entry.ends.map(speedOf))})` : "";
  return `${entry.panel}, ${placeText(setting().axis, entry.x)}: ${nameText(best)}${also}, ${figureText(speedOf(entry.tflops))} ${speedUnit()}${ends}${lead}${limit}.`;
}

function winners() {
  const order = setting().order.find(([pass]) => pass === passNow())?.[1] ?? [];
  const count = setting().matrix.filter(({ pass }) => pass === passNow()).length;
  const best = order
    .map(([name, , curve]) => [name, curve.at(-1)])
    .filter(([, share]) => share > 0)
    .sort((a, b) => b[1] - a[1])
    .slice(0, 4);
  const place = document.getElementById("winners");
  place.replaceChildren(
    ...best.map(([name, share], i) => {
      const entry = element("span", null, "winner");
      entry.append(
        swatch(name),
        element("b", nameText(name)),
        ` ${i ? "in" : "is fastest or as fast in"} ${shareText(share)}${i ? "" : ` of ${count} cells`}`,
      );
      return entry;
    }),
  );
}

// Counts the shown times that are of older kernel code; their receipts say so, too.
function drawOlder(own) {
  const older = own.filter(({ records }) => records.some((record) => get(record, "older"))),
    place = document.getElementById("older-note");
  place.hidden = !older.length;
  place.textContent = older.length
    ? `${older.length === own.length ? (own.length === 1 ? "This time is" : `All ${own.length} times are`) : `${older.length} of ${own.length} times are`} of older kernel code than this LongCA has, or of code whose version was not recorded.`
    : "";
}

function drawAnswer() {
  const { axis, panels, matrix } = setting(),
    own = matrix.filter(({ pass }) => pass === passNow());
  const places = unique(own.map(({ x }) => x)).sort((a, b) => a - b),
    limited = own.some(({ limit }) => limit !== null),
    made = element("table", null, "answers");
  made.style.setProperty("--places", places.length);
  const head = element("tr");
  head.append(element("th", "mask"), ...places.map((x) => element("th", placeText(axis, x))));
  const caption = element("caption");
  caption.append(
    element(
      "span",
      `${axisTitle(axis)} across; in each cell the fastest ${setting().line}, ${unitOf(MEASURES[0])}, ${own.some(({ masks }) => masks > 1) ? "its range over the seeds, " : ""}${limited ? "share of the limit, " : ""}and its lead over the next or who is as fast (=)${setting().suffix ? `; everything was${setting().suffix.slice(1)}, nothing was measured` : ""}`,
    ),
  );
  made.append(caption, element("thead"), element("tbody"));
  made.tHead.append(head);
  const rows = groupBy(own, ({ panel, simulated }) => JSON.stringify([panels.findIndex(([name]) => name === panel), simulated]));
  for (const key of [...rows.keys()].sort((a, b) => JSON.parse(a)[0] - JSON.parse(b)[0])) {
    const entries = new Map(rows.get(key).map((entry) => [entry.x, entry])),
      [number, simulated] = JSON.parse(key),
      [panel, mask] = panels[number];
    const row = element("tr"),
      name = element("th");
    name.scope = "row";
    const link = button(null, () => setState({ panel }), "panel-name");
    link.append(
      ...[maskPicture(mask, panel), breakable(panel + (simulated && !setting().suffix ? `, simulated on ${simulated}` : ""))].filter(Boolean),
    );
    link.title = `${maskWords(mask)}. Click for the chart.`;
    name.append(link);
    row.append(name, ...places.map((x) => (entries.has(x) ? answerCell(entries.get(x)) : element("td", "–", "empty"))));
    made.tBodies[0].append(row);
  }
  document.getElementById("matrix").replaceChildren(own.length ? made : element("p", "Nothing here has a time; see what failed.", "note"));
  bindSelect(
    "tint",
    "tint",
    tints(limited).map(([key, text]) => option(key, text)),
    state.tint,
  );
  document.getElementById("limit-note").hidden = !limited;
  drawOlder(own);
  winners();
  watchOverflow();
}
