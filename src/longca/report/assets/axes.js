// The axes of charts: their ends are common to all panels.

// What all panels share: the measure, the order and the modes of kernels, and the ends of the axes.
function chartFrame() {
  const cells = withSpeedups(cellsNow()),
    measure = measureNow(cells),
    order = orderedLines();
  const shown = cells.filter((cell) => measure.value(cell) !== null && modeOf(cell.line, order) !== "hidden");
  const values = shown.map(measure.value),
    places = unique(cells.map(({ x }) => x)).sort((a, b) => a - b);
  return {
    cells,
    measure,
    order,
    shown,
    places,
    axis: setting().axis,
    ends: [Math.min(...values), Math.max(...values)],
    byPanel: groupBy(cells, ({ panel }) => panel),
    log: state.scale === "log",
  };
}

// The end of an axis that begins at 0, and the distance of its marks.
function niceEnd(value) {
  const unit = 10 ** Math.floor(Math.log10(value)),
    steps = [
      [1, 0.25],
      [1.5, 0.5],
      [2, 0.5],
      [2.5, 0.5],
      [3, 1],
      [4, 1],
      [5, 1],
      [6, 2],
      [8, 2],
      [10, 2.5],
    ];
  const [end, mark] = steps.find(([step]) => step * unit >= value * 0.999);
  return { min: 0, max: end * unit, interval: mark * unit };
}

function valueAxis({ measure, ends, log }, name = true) {
  const { quiet, line } = theme();
  const text = (value) =>
    measure.share
      ? `${Number((100 * value).toPrecision(3))}`
      : value >= 1e6
        ? `${Number((value / 1e6).toPrecision(3))}M`
        : value >= 1e4
          ? `${Number((value / 1e3).toPrecision(3))}k`
          : String(Number(value.toPrecision(3)));
  const base = {
    name: name ? unitOf(measure) : "",
    nameLocation: "end",
    nameGap: 12,
    nameTextStyle: { color: quiet, align: "left", padding: [0, 0, 0, -38] },
    axisLabel: { color: quiet, formatter: text, hideOverlap: true },
    splitLine: { lineStyle: { color: line } },
    axisLine: { show: false },
    axisTick: { show: false },
  };
  if (log && ends[0] > 0)
    return {
      ...base,
      type: "log",
      logBase: 10,
      min: ends[0] * 0.85,
      max: ends[1] * 1.15,
      axisLabel: { ...base.axisLabel, customValues: logMarks(ends[0] * 0.85, ends[1] * 1.15) },
      axisTick: { show: false },
    };
  return { ...base, type: "value", ...niceEnd(ends[1] > 0 && Number.isFinite(ends[1]) ? ends[1] : 1) };
}

// Powers of ten, or 1, 2 and 5 where there would be two of them at most.
function logMarks(low, high) {
  const found = (digits) => {
    const marks = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power++)
      for (const digit of digits) {
        const mark = digit * 10 ** power;
        if (mark >= low && mark <= high) marks.push(Number(mark.toPrecision(1)));
      }
    return marks;
  };
  return [[1], [1, 3], [1, 2, 5]].map(found).find((marks) => marks.length > 2) ?? found([1, 2, 3, 4, 5, 6, 7, 8, 9]);
}

function placeAxis({ axis, places }, big) {
  const { quiet, line } = theme(),
    low = places[0],
    high = places.at(-1),
    log = axis !== "ratio";
  const label = { color: quiet, hideOverlap: true, customValues: places, formatter: (x) => placeText(axis, x) };
  const common = {
    name: axisTitle(axis),
    nameLocation: "middle",
    nameGap: big ? 30 : 24,
    nameTextStyle: { color: quiet },
    axisLabel: label,
    axisTick: { customValues: places, lineStyle: { color: quiet } },
    axisLine: { onZero: false, lineStyle: { color: quiet } },
    splitLine: { show: false },
  };
  if (log) return { ...common, type: "log", logBase: 2, min: low / 1.12, max: high * 1.12 };
  const edge = Math.max(0.03, (high - low) * 0.06);
  return { ...common, type: "value", min: Math.max(0, low - edge), max: Math.min(1, high + edge) };
}
