// The options of one chart. A panel is a mask; its lines are kernels. Everything is drawn by ECharts.
const GREY_WIDTH = 1;

// Lines are broken where others have a time and this one has none.
function lineSeries(frame, name, own, places, big) {
  const mode = modeOf(name, frame.order),
    { colour, symbol, hollow } = lookOf(name),
    { paper, faint } = theme(),
    grey = mode === "grey";
  const timed = new Map(own.filter((cell) => frame.measure.value(cell) !== null).map((cell) => [cell.x, cell]));
  const ink = grey ? faint : colour;
  return {
    type: "line",
    name,
    z: grey ? 1 : 3,
    symbol,
    showSymbol: true,
    symbolSize: grey ? 3 : big ? 9 : 6,
    animation: false,
    triggerLineEvent: false,
    emphasis: { disabled: true },
    lineStyle: { color: ink, width: grey ? GREY_WIDTH : hollow ? 1.2 : 2, type: hollow ? "dotted" : "solid" },
    itemStyle: hollow ? { color: paper, borderColor: ink, borderWidth: 1.5 } : { color: ink },
    data: places.map((x) => (timed.has(x) ? { value: [x, frame.measure.value(timed.get(x))], cell: timed.get(x) } : { value: [x, null] })),
  };
}

// Bars over the seeds, or from the 20th to the 80th percentile, in the enlarged chart only.
function spreadSeries(frame, name, own) {
  const spreads = own.map((cell) => [cell.x, spreadOf(frame.measure, cell)]).filter(([, spread]) => spread),
    { colour } = lookOf(name);
  return {
    type: "custom",
    silent: true,
    z: 2,
    animation: false,
    data: spreads.map(([x, [low, high]]) => [x, low, high]),
    encode: { x: 0, y: [1, 2] },
    tooltip: { show: false },
    renderItem: (_, api) => {
      const [x, low] = api.coord([api.value(0), api.value(1)]),
        high = api.coord([api.value(0), api.value(2)])[1];
      return { type: "line", shape: { x1: x, y1: low, x2: x, y2: high }, style: { stroke: colour, lineWidth: 2, opacity: 0.6 } };
    },
  };
}

// A level line: the dense mask measured in the same run, where the measure is one that both have.
function denseSeries(frame, panel) {
  if (!["ms", "tokens", "joules"].includes(frame.measure.key)) return [];
  return setting()
    .dense.filter(([own, pass]) => own === panel && pass === passNow())
    .map(([, , name, record]) => {
      const value = frame.measure.value({ record, second: -1, ms: get(record, "ms_median"), tflops: get(record, "tflops") });
      return {
        type: "line",
        name,
        z: 2,
        symbol: "none",
        silent: true,
        animation: false,
        lineStyle: { color: theme().ink, width: 1.4, type: "dashed" },
        endLabel: { show: true, formatter: "dense", color: theme().quiet, distance: -30, offset: [0, -8] },
        data: [frame.places[0], frame.places.at(-1)].map((x) => [x, value]),
      };
    });
}

function lineOption(frame, panel, big = false) {
  const own = frame.byPanel.get(panel) ?? [],
    lines = groupBy(own, ({ line }) => line);
  const names = frame.order.filter((name) => lines.has(name) && modeOf(name, frame.order) !== "hidden");
  const series = names.map((name) =>
    lineSeries(
      frame,
      name,
      lines.get(name),
      unique(own.map(({ x }) => x)).sort((a, b) => a - b),
      big,
    ),
  );
  if (big)
    series.push(
      ...names.filter((name) => modeOf(name, frame.order) === "colour").map((name) => spreadSeries(frame, name, lines.get(name))),
    );
  series.push(...denseSeries(frame, panel));
  const zoom = big
    ? [
        { type: "inside", filterMode: "none", ...zoomRange(state.zoom) },
        {
          type: "slider",
          ...zoomRange(state.zoom),
          height: 18,
          bottom: 6,
          showDataShadow: false,
          filterMode: "none",
          labelFormatter: (x) => placeText(frame.axis, Math.round(x)),
          textStyle: { color: theme().quiet },
        },
      ]
    : [];
  return {
    animation: false,
    grid: { left: 46, right: 14, top: 30, bottom: big ? 78 : 42 },
    xAxis: placeAxis(frame, big),
    yAxis: valueAxis(frame),
    series,
    dataZoom: zoom,
    tooltip: {
      trigger: "axis",
      axisPointer: { type: "line", snap: true, lineStyle: { color: theme().quiet } },
      ...tooltipStyle(),
      appendTo: big ? undefined : "body",
      order: "seriesAsc",
      formatter: (hit) => {
        const x = nearest(frame.places, (hit[0] ?? hit).value[0]);
        return tooltipText(
          own.filter((cell) => cell.x === x),
          frame.measure,
          `${panel}, ${placeText(frame.axis, x)} ${axisTitle(frame.axis)}`,
        );
      },
    },
  };
}

const nearest = (places, x) => places.reduce((best, place) => (Math.abs(place - x) < Math.abs(best - x) ? place : best), places[0]);

// Below short bars there is room for the ends of an axis and its middle.
const fewerMarks = (axis) => (axis.interval ? { ...axis, interval: axis.max / 2 } : axis);

function barOption(frame, panel, x, big = false) {
  const own = (frame.byPanel.get(panel) ?? []).filter((cell) => cell.x === x),
    { quiet, faint, ink, paper } = theme(),
    { measure } = frame;
  const bars = own
    .filter((cell) => measure.value(cell) !== null && modeOf(cell.line, frame.order) !== "hidden")
    .sort((a, b) => (measure.high ? -1 : 1) * (measure.value(a) - measure.value(b)));
  const item = (cell) => {
    const { colour, hollow } = lookOf(cell.line),
      own = modeOf(cell.line, frame.order) === "grey" ? faint : colour;
    return hollow ? { color: paper, borderColor: own, borderWidth: 1.5 } : { color: own };
  };
  return {
    animation: false,
    grid: { left: 8, right: 46, top: 6, bottom: 24, containLabel: true },
    xAxis: { ...fewerMarks(valueAxis(frame, false)), name: unitOf(measure), nameLocation: "middle", nameGap: 26, nameTextStyle: { color: quiet } },
    yAxis: {
      type: "category",
      inverse: true,
      data: bars.map(({ line }) => nameText(line)),
      axisLabel: { color: ink, width: big ? 260 : 130, overflow: "truncate" },
      axisTick: { show: false },
      axisLine: { lineStyle: { color: quiet } },
    },
    series: [
      {
        type: "bar",
        barMaxWidth: 20,
        label: {
          show: true,
          position: "right",
          color: ink,
          fontSize: 11,
          formatter: ({ data }) => valueText({ ...measure, unit: "" }, data.value),
        },
        data: bars.map((cell) => ({ value: measure.value(cell), itemStyle: item(cell), cell })),
      },
    ],
    tooltip: {
      trigger: "axis",
      axisPointer: { type: "shadow" },
      ...tooltipStyle(),
      appendTo: big ? undefined : "body",
      formatter: () => tooltipText(own, measure, `${panel}, ${placeText(frame.axis, x)}`),
    },
  };
}

const barCount = (frame, panel, x) =>
  (frame.byPanel.get(panel) ?? []).filter(
    (cell) => cell.x === x && frame.measure.value(cell) !== null && modeOf(cell.line, frame.order) !== "hidden",
  ).length;
