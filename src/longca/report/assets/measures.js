// What charts and tables can show of a cell. Values are those of the cell (over its masks, from Python) or fields of its records; only units are
// converted.
const recordsOf = (cell) => [cell.record, cell.second].filter((record) => record >= 0);
const joined = (name, join) => (cell) => {
  const values = recordsOf(cell).map((record) => get(record, name));
  return !values.length || values.some((value) => typeof value !== "number") ? null : join(values);
};
const sum = (values) => values.reduce((total, value) => total + value, 0),
  most = (values) => Math.max(...values);
const positive = (value) => (cell) => {
  const found = value(cell);
  return found > 0 ? found : null;
};
const rowsOf = (name) => (cell) => {
  const lists = recordsOf(cell).map((record) => get(record, name));
  return lists.length && lists.every(Array.isArray) ? sum(lists.map(most)) : null;
};

// Records hold TFLOP/s; a setting says in which unit its speeds are shown (GFLOP/s on a CPU).
const inUnit = (tflops, [, factor]) => (tflops === null || tflops === undefined ? null : Number((tflops * factor).toPrecision(12)));
const speedUnit = () => setting().unit[0],
  speedOf = (tflops) => inUnit(tflops, setting().unit),
  unitOfRecord = (record) => DATA.settings[get(record, "setting")].unit;

const MEASURES = [
  {
    key: "tflops",
    get label() {
      return speedUnit();
    },
    get unit() {
      return speedUnit();
    },
    high: true,
    value: (cell) => speedOf(cell.tflops),
  },
  { key: "ms", label: "Time", unit: "ms", value: (cell) => cell.ms },
  { key: "speedup", label: "Speed-up over …", unit: "×", high: true, value: (cell) => cell.speedup ?? null },
  { key: "limit", label: "Share of the limit", unit: "% of the limit", high: true, share: true, value: (cell) => cell.limit },
  {
    key: "peak",
    label: "Share of the peak",
    unit: "% of the peak",
    high: true,
    share: true,
    value: (cell) => (cell.tflops === null || !setting().peak ? null : cell.tflops / setting().peak),
  },
  { key: "close", label: "Share of the fastest", unit: "% of the fastest", high: true, share: true, value: (cell) => cell.close },
  {
    key: "tokens",
    label: "Tokens/s",
    unit: "tokens/s",
    high: true,
    value: (cell) => (cell.ms === null ? null : (1e3 * get(cell.record, "seqlen")) / cell.ms),
  },
  { key: "joules", label: "Energy", unit: "J", value: joined("joules", sum) },
  { key: "memory", label: "Peak memory", unit: "GiB", value: positive(joined("peak_gib", most)) },
  { key: "error", label: "Error", unit: "% of the tolerance", share: true, value: (cell) => cell.error },
  { key: "wait", label: "Waiting for transfers and others", unit: "% of the time", share: true, value: joined("wait_share", most) },
  { key: "exposed", label: "Transfers exposed", unit: "% of the time", share: true, value: joined("exposed_share", most) },
  { key: "hidden", label: "Transfers hidden", unit: "% of the transfers", share: true, high: true, value: joined("hidden_share", most) },
  { key: "imbalance", label: "Imbalance of the work", unit: "most over mean", value: joined("imbalance", most) },
  {
    key: "sent",
    label: "Bytes sent by a rank",
    unit: "GiB",
    value: (cell) => {
      const bytes = rowsOf("bytes_sent")(cell);
      return bytes ? bytes / 2 ** 30 : null;
    },
  },
  { key: "plan", label: "Planning", unit: "ms", value: positive(joined("plan_ms", sum)) },
  { key: "compile", label: "First call (compiling)", unit: "ms", value: positive(joined("compile_ms", sum)) },
  { key: "build", label: "Making the mask", unit: "ms", value: positive(joined("build_ms", most)) },
];

// Times of the chosen baseline at each place; a cell's speed-up is the ratio of the two times.
function withSpeedups(cells) {
  const place = ({ panel, x }) => JSON.stringify([panel, x]);
  const base = new Map(cells.filter(({ line, ms }) => line === baseNow() && ms !== null).map((cell) => [place(cell), cell.ms]));
  for (const cell of cells) cell.speedup = cell.ms === null || !base.has(place(cell)) ? null : base.get(place(cell)) / cell.ms;
  return cells;
}

const baseNow = () => {
  const lines = orderedLines();
  return lines.includes(state.base) ? state.base : lines[0];
};
const offered = (cells) =>
  MEASURES.filter(({ key, value }) => key === "speedup" || cells.some((cell) => cell.tflops !== null && value(cell) !== null));
const measureNow = (cells) => offered(cells).find(({ key }) => key === state.measure) ?? MEASURES[0];

const unitOf = (measure) => {
  const each = measure.key === "tflops" && setting().axis === "ranks" ? ` per ${setting().place}` : "";
  return measure.key === "speedup" ? `× the speed of ${nameText(baseNow())}` : measure.unit + each;
};

function valueText(measure, value) {
  if (value === null) return "";
  if (measure.share) return shareText(value);
  return measure.key === "speedup"
    ? `${figureText(value)}×`
    : `${figureText(value)} ${measure.unit === "most over mean" ? "" : measure.unit}`.trim();
}

// In the unit of the measure the ends over several masks, else the 20th and 80th percentile of the samples; only speeds and times have them.
function spreadOf(measure, cell) {
  const [p20, p80] = ["ms_p20", "ms_p80"].map((name) => joined(name, sum)(cell));
  if (!["tflops", "ms"].includes(measure.key) || p20 === null) return null;
  if (cell.masks > 1) return measure.key === "ms" ? cell.times : cell.speeds.map(speedOf);
  const speed = speedOf(cell.tflops);
  return measure.key === "ms" ? [p20, p80] : [(speed * cell.ms) / p80, (speed * cell.ms) / p20];
}
