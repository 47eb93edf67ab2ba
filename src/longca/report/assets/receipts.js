// The receipt of a number shows the record behind it, with its command, versions, clock, spread and error.
const ENVIRONMENTS = new Map(DATA.environments.map(([name, title, facts]) => [name, { title, facts: new Map(facts) }]));
const TENSORS = ["out", "lse", "dq", "dk", "dv", "dsinks"];

function timeLine(record) {
  if (get(record, "ms_median") === null) return `${statusOf(record).words}: ${get(record, "reason") || "no reason was given"}`;
  const [ms, p20, p80, n, spread] = ["median", "p20", "p80", "n", "spread"].map((name) => get(record, `ms_${name}`));
  const known = spread === null ? "" : `, median known to ${spread < 0.0005 ? "less than ±0.1 %" : `±${shareText(spread)}`}`;
  const unit = unitOfRecord(record);
  return `${figureText(inUnit(get(record, "tflops"), unit))} ${unit[0]}, ${numberText(ms)} ms (20th to 80th percentile ${numberText(p20)} to ${numberText(p80)}, ${n} samples${known})`;
}

// The least time of the device for this work, and the measured time beside it.
function rooflineLine(record) {
  const [work, tiles, bytes, rate, limit, ms] = ["flops", "tile_flops", "bytes", "gb_s", "limit_ms", "ms_median"].map((name) => get(record, name));
  if (!bytes) return get(record, "ranks") > 1 ? "only for records of one device" : "not known: the journal lacks the mask";
  const parts = [`${numberText(work / 1e12)} TFLOP${tiles ? `, ${numberText(tiles / 1e12)} in the tiles that the mask touches` : ""}`];
  parts.push(`${numberText(bytes / 1e9)} GB${rate ? ` at ${figureText(rate)} GB/s` : ""}`);
  if (limit) parts.unshift(`at least ${numberText(limit)} ms, bound by ${get(record, "bound")}${ms ? `; measured: ${(ms / limit).toFixed(2)}x` : ""}`);
  return parts.join("; ");
}

function errorLine(record) {
  const parts = TENSORS.map((tensor) => [tensor, get(record, `check_${tensor}_error`), get(record, `check_${tensor}_allowed`)])
    .filter(([, error]) => error !== null && error !== undefined)
    .map(
      ([tensor, error, allowed]) =>
        `${tensor} ${numberText(error)} of ${numberText(allowed)} (${shareText(allowed ? error / allowed : 0)})`,
    );
  return parts.join(", ") || "not checked";
}

function clockLine(record) {
  const facts = ENVIRONMENTS.get(get(record, "env"))?.facts ?? new Map();
  const shown = [
    ["clock_mhz", "MHz"],
    ["watts", "W"],
    ["joules", "J per call"],
  ]
    .filter(([name]) => get(record, name))
    .map(([name, unit]) => `${numberText(get(record, name))} ${unit}`);
  const settings = [...facts].filter(([name]) => name.startsWith("clock.")).map(([name, value]) => `${name.slice(6)}=${value}`);
  return (
    [
      ...shown,
      ...settings,
      ...(get(record, "noisy") ? ["noisy: sampling ended before the median was known to the target"] : []),
      ...(get(record, "host_bound") ? ["bound by the host"] : []),
    ].join(", ") || "not recorded"
  );
}

function versionLine(record) {
  const own = JSON.parse(get(record, "versions") || "{}"),
    environment = ENVIRONMENTS.get(get(record, "env"));
  const facts = ["driver", "python", "longca", "date"]
    .filter((name) => environment?.facts.get(name))
    .map((name) => `${name} ${environment.facts.get(name)}`);
  const packages = [...(environment?.facts ?? [])]
    .filter(([name]) => name.startsWith("packages."))
    .map(([name, version]) => `${name.slice(9)} ${version}`);
  return (
    unique([...Object.entries(own).map(([name, version]) => `${name} ${version}`), ...packages, ...facts]).join(", ") || "not recorded"
  );
}

const copied = (text, place) =>
  navigator.clipboard?.writeText(text).then(
    () => {
      place.textContent = "Copied";
    },
    () => {
      place.textContent = "Select the text and copy it";
    },
  );

// A record from before code versions were kept is older than the code here, too.
const olderWords = (record) =>
  JSON.parse(get(record, "versions") || "{}").code
    ? "A newer version of this kernel's code exists: this time is of an older one."
    : "A newer version of this kernel's code may exist: the record does not have the version.";

function receipt(record) {
  const box = element("section", null, "receipt"),
    simulated = get(record, "simulated"),
    command = get(record, "command");
  box.append(
    element(
      "h3",
      `${get(record, "line")} · ${get(record, "panel")} · ${sizeText(get(record, "seqlen"))} · ${PASS_WORDS.get(get(record, "pass"))}`,
    ),
  );
  if (get(record, "older")) box.append(element("p", `${olderWords(record)} Run the command to measure it again.`, "warn"));
  if (get(record, "same"))
    box.append(element("p", `At this length the mask ${get(record, "mask")} is the same as ${get(record, "same")}.`, "note"));
  if (simulated) box.append(element("p", `Simulated on ${simulated}, not measured.`, "warn"));
  const list = element("dl");
  const lines = [
    ["result", timeLine(record)],
    ["roofline", rooflineLine(record)],
    ["error and tolerance", errorLine(record)],
    ["clock", clockLine(record)],
    ["versions", versionLine(record)],
    ["device", ENVIRONMENTS.get(get(record, "env"))?.title ?? "not recorded"],
  ];
  for (const [name, text] of lines) list.append(element("dt", name), element("dd", text));
  box.append(list);
  if (command) {
    const copy = button("Copy", () => copied(command, copy));
    box.append(
      element("p", get(record, "ranks") > 1 ? "To measure it again (on several nodes under torchrun or srun):" : "To measure it again:"),
      element("pre", command),
      copy,
    );
  } else if (!simulated) box.append(element("p", "The journal does not have its document lengths, so no command makes the same mask."));
  const all = element("details");
  all.append(element("summary", "All fields"), fieldList(fieldsOf(record)));
  box.append(all);
  return box;
}

// Shows the receipts of some records in a window of their own; `words` stand above them.
function showReceipts(records, words = "") {
  const dialog = document.getElementById("receipts"),
    place = document.getElementById("receipts-text");
  place.replaceChildren(
    ...(words ? [element("p", words, "note")] : []),
    ...unique(records)
      .filter((record) => record >= 0)
      .map(receipt),
  );
  if (!dialog.open) dialog.showModal();
  dialog.scrollTop = 0;
}

// What a speed cannot be compared with: those of other kernels that are of other masks, as each seed has its own documents.
function otherMasks(cell) {
  if (cell.tflops === null || cell.masks === cell.compared) return "";
  if (!cell.compared) return "Other kernels are compared on other masks (seeds).";
  return `It was measured on ${cell.masks} of the ${cell.compared} masks (seeds) on which kernels are compared.`;
}

function showCell(cell) {
  const overMasks =
    cell.masks > 1
      ? `Of ${cell.masks} masks (seeds) the page shows all work over all time, ${figureText(speedOf(cell.tflops))} ${speedUnit()} (${rangeText(cell.speeds.map(speedOf))}); this is the record nearest to it.`
      : "";
  showReceipts([...recordsOf(cell), cell.failed], [overMasks, otherMasks(cell)].filter(Boolean).join(" "));
}
