// Timelines of ranks, as `longca simulate --trace` wrote them: compute above, transfers below, waiting in red.
const KIND_COLOURS = new Map([
  ["attention", "--attention"],
  ["memory", "--memory"],
  ["transfer", "--transfer"],
  ["waiting", "--waiting"],
]);

const kindColour = (kind) => css(KIND_COLOURS.get(kind) ?? "--s8");

function timelineOption({ spans }, zoom) {
  const ranks = unique(spans.map(([rank]) => rank)),
    { quiet, line } = theme(),
    colours = new Map(unique(spans.map(([, kind]) => kind)).map((kind) => [kind, kindColour(kind)]));
  const end = Math.max(...spans.map(([, , , , stop]) => stop));
  const draw = (params, api) => {
    const [left, top] = api.coord([api.value(1), api.value(0)]),
      right = api.coord([api.value(2), api.value(0)])[0],
      lane = api.size([0, 1])[1],
      kind = spans[params.dataIndex][1],
      transfer = kind === "transfer";
    const shape = {
      x: left,
      y: top + (transfer ? 0.06 : -0.38) * lane,
      width: Math.max(0.5, right - left),
      height: (transfer ? 0.26 : 0.4) * lane,
    };
    const { x, y, width, height } = params.coordSys,
      from = Math.max(x, shape.x),
      to = Math.min(x + width, shape.x + shape.width);
    return to <= from || shape.y > y + height
      ? null
      : { type: "rect", shape: { ...shape, x: from, width: to - from }, style: { fill: colours.get(kind) } };
  };
  const tip = ({ dataIndex }) => {
    const [rank, kind, name, start, stop, bytes] = spans[dataIndex];
    const box = element("div", null, "tip");
    box.append(
      element("strong", `rank ${rank}, ${kind}`),
      element(
        "small",
        `${name}: ${numberText(start)} to ${numberText(stop)} ms${bytes ? `, ${figureText(bytes / 2 ** 20)} MiB` : ""}`,
      ),
    );
    return box;
  };
  return {
    animation: false,
    grid: { left: 70, right: 16, top: 10, bottom: 76 },
    xAxis: {
      type: "value",
      min: 0,
      max: end,
      name: "ms",
      nameLocation: "middle",
      nameGap: 26,
      axisLabel: { color: quiet, showMaxLabel: false },
      nameTextStyle: { color: quiet },
      splitLine: { lineStyle: { color: line } },
    },
    yAxis: {
      type: "category",
      inverse: true,
      data: ranks.map((rank) => `rank ${rank}`),
      axisLabel: { color: quiet },
      axisTick: { show: false },
    },
    dataZoom: [
      { type: "inside", filterMode: "weakFilter", ...zoom },
      { type: "slider", height: 18, bottom: 8, filterMode: "weakFilter", textStyle: { color: quiet }, ...zoom },
    ],
    tooltip: { trigger: "item", ...tooltipStyle(), formatter: tip },
    series: [
      {
        type: "custom",
        renderItem: draw,
        encode: { x: [1, 2], y: 0 },
        data: spans.map(([rank, , , start, stop]) => [ranks.indexOf(rank), start, stop]),
      },
    ],
  };
}

function drawTimelines() {
  const place = document.getElementById("timelines");
  document.getElementById("parallel").hidden = document.getElementById("to-parallel").hidden = !DATA.timelines.length;
  forget([...place.querySelectorAll(".plot")]);
  place.replaceChildren();
  for (const [number, timeline] of DATA.timelines.entries()) {
    const plotted = plot(`Timeline ${timeline.title}`),
      legend = element("p", null, "key");
    for (const kind of unique(timeline.spans.map(([, kind]) => kind))) {
      const entry = element("span"),
        mark = element("span", null, "swatch rect");
      mark.style.setProperty("--c", kindColour(kind));
      entry.append(mark, kind);
      legend.append(entry);
    }
    plotted.style.height = `${110 + 42 * unique(timeline.spans.map(([rank]) => rank)).length}px`;
    place.append(element("h3", timeline.title), legend, plotted);
    plotted.addEventListener("zoom", ({ detail }) => {
      const spans = DATA.timelines.map((_, other) => (other === number ? detail : (state.spans[other] ?? "")));
      setState({ spans: spans.some(Boolean) ? spans : [] });
    });
    plan(plotted, timelineOption(timeline, zoomRange(state.spans[number])));
  }
}
