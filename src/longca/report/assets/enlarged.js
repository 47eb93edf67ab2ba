// One chart enlarged, with zoom, an image to download, and its numbers as a table.

function panelTable(frame, panel) {
  const own = frame.byPanel.get(panel) ?? [],
    places = unique(own.map(({ x }) => x)).sort((a, b) => a - b),
    lines = groupBy(own, ({ line }) => line);
  const made = element("table", null, "values"),
    head = element("tr");
  head.append(element("th", unitOf(frame.measure)), ...places.map((x) => element("th", placeText(frame.axis, x), "number")));
  made.append(element("thead"), element("tbody"));
  made.tHead.append(head);
  for (const name of unique([...frame.order, ...lines.keys()]).filter((line) => lines.has(line))) {
    const row = element("tr"),
      title = element("th"),
      cells = new Map(lines.get(name).map((cell) => [cell.x, cell]));
    title.scope = "row";
    title.append(swatch(name), breakable(nameText(name)));
    row.append(title, ...places.map((x) => valueCell(frame.measure, cells.get(x))));
    made.tBodies[0].append(row);
  }
  return made;
}

function valueCell(measure, cell) {
  const made = element("td", null, "number");
  if (!cell) return made;
  const value = measure.value(cell),
    words =
      value !== null
        ? valueText({ ...measure, unit: "" }, value)
        : cell.failed < 0
          ? ""
          : statusOf(cell.failed).never
            ? "–"
            : statusOf(cell.failed).words;
  const link = button(words, () => showCell(cell), value === null ? "link quiet" : "link");
  if (cell.failed >= 0) link.title = `${statusOf(cell.failed).words}: ${get(cell.failed, "reason")}`;
  made.append(link);
  return made;
}

function imageOf(chart, name) {
  saveAs(chart.getDataURL({ pixelRatio: 2, backgroundColor: theme().paper }), `${name.replace(/[^\w.-]+/g, "_")}.png`);
}

function drawEnlarged() {
  const dialog = document.getElementById("enlarged"),
    { panels } = setting(),
    number = panels.findIndex(([panel]) => panel === state.panel);
  const box = document.getElementById("enlarged-chart");
  if (number < 0) {
    forget([...box.children]);
    box.replaceChildren();
    if (dialog.open) dialog.close();
    return;
  }
  const frame = chartFrame(),
    [panel, mask] = panels[number],
    next = (step) => () => setState({ panel: panels[(number + step + panels.length) % panels.length][0] });
  if (!dialog.open) dialog.showModal();
  document.getElementById("enlarged-title").replaceChildren(...[maskPicture(mask, panel), breakable(panel)].filter(Boolean));
  document.getElementById("enlarged-words").textContent = [
    maskWords(mask),
    `${PASS_WORDS.get(passNow())}, ${unitOf(frame.measure)}. Bars on points span the range over several seeds, or the 20th to the 80th percentile of the samples of one. Click a point or a number for its record.`,
  ]
    .filter(Boolean)
    .join("; ");
  forget([...box.children]);
  drawLegend(frame.order, "enlarged-legend");
  const place = plot(chartWords(frame, panel));
  place.addEventListener("zoom", ({ detail }) => setState({ zoom: detail }));
  box.replaceChildren(place);
  pending.set(place, asBars(frame) ? barOption(frame, panel, barPlace(frame), true) : lineOption(frame, panel, true));
  paint(place);
  const tools = [
    button("‹ Previous mask", next(-1)),
    button("Next mask ›", next(1)),
    button("Download image", () => imageOf(drawn.get(place), `${panel}_${passNow()}_${frame.measure.key}`)),
  ];
  if (!asBars(frame)) tools.push(button("Reset zoom", () => drawn.get(place).dispatchAction({ type: "dataZoom", start: 0, end: 100 })));
  document.getElementById("enlarged-tools").replaceChildren(...tools);
  document.getElementById("enlarged-table").replaceChildren(panelTable(frame, panel));
  watchOverflow(); // of this table, too, which had no width before
}
