// One tooltip for all charts: every kernel at that place, the best first, and below them those without a time.
const MOST_ROWS = 16;

function tooltipText(cells, measure, title) {
  const box = element("div", null, "tip"),
    rows = element("table");
  const timed = cells
    .filter((cell) => measure.value(cell) !== null)
    .sort((a, b) => (measure.high ? -1 : 1) * (measure.value(a) - measure.value(b)));
  const best = timed.length ? measure.value(timed[0]) : null;
  box.append(element("strong", title));
  for (const cell of timed.slice(0, MOST_ROWS)) {
    const row = element("tr"),
      name = element("td"),
      value = measure.value(cell),
      spread = spreadOf(measure, cell);
    name.append(swatch(cell.line), nameText(cell.line) + (get(cell.record, "noisy") ? " ~" : ""));
    const part = best && value !== best && !measure.share ? shareText(measure.high ? value / best : best / value) : "";
    const ends = spread && cell.masks > 1 ? ` (${rangeText(spread)})` : "";
    const others = otherMasks(cell);
    row.append(name, element("td", valueText(measure, value) + ends, "number"), element("td", part, "number quiet"));
    if (others) name.append(element("small", " other masks", "quiet"));
    row.title = [spread ? rangeText(spread) : "", others].filter(Boolean).join("; ");
    rows.append(row);
  }
  box.append(rows);
  if (timed.length > MOST_ROWS) box.append(element("small", `and ${timed.length - MOST_ROWS} more`));
  const without = groupBy(
    cells.filter((cell) => cell.tflops === null && cell.failed >= 0),
    (cell) => statusOf(cell.failed).words,
  );
  for (const [words, own] of without)
    box.append(element("small", `${words}: ${own.map(({ line }) => nameText(line)).join(", ")}`, "quiet"));
  const same = cells
    .map((cell) => recordsOf(cell)[0])
    .filter((record) => record !== undefined)
    .map((record) => get(record, "same"))
    .find(Boolean);
  if (same) box.append(element("small", `At this length the mask is the same as ${same}.`, "quiet"));
  return box;
}

const tooltipStyle = () => ({
  backgroundColor: theme().paper,
  borderColor: theme().quiet,
  borderWidth: 1,
  padding: 8,
  confine: true,
  textStyle: { color: theme().ink, fontSize: 12 },
  transitionDuration: 0,
});
