// One curve per kernel: in what share of the cells it reaches a share of the fastest speed.

function drawCurve() {
  const order = orderedLines(),
    curves = setting().order.find(([pass]) => pass === passNow())?.[1] ?? [],
    { quiet, line, faint, paper } = theme();
  const place = document.getElementById("curve");
  document.getElementById("closeness").hidden = !curves.length;
  drawLegend(order, "curve-legend");
  const series = curves
    .filter(([name]) => modeOf(name, order) !== "hidden")
    .map(([name, , curve]) => {
      const grey = modeOf(name, order) === "grey",
        { colour, symbol, hollow } = lookOf(name),
        ink = grey ? faint : colour;
      return {
        type: "line",
        name,
        step: false,
        z: grey ? 1 : 3,
        symbol,
        symbolSize: grey ? 3 : 6,
        animation: false,
        emphasis: { disabled: true },
        lineStyle: { color: ink, width: grey ? 1 : 2, type: hollow ? "dotted" : "solid" },
        itemStyle: hollow ? { color: paper, borderColor: ink } : { color: ink },
        data: curve.map((share, i) => [DATA.steps[i], share]),
      };
    });
  const percent = (value) => `${Math.round(100 * value)} %`,
    common = {
      type: "value",
      nameTextStyle: { color: quiet },
      axisLabel: { color: quiet, formatter: percent },
      splitLine: { lineStyle: { color: line } },
    };
  const tip = (x) => {
    const step = DATA.steps.indexOf(nearest(DATA.steps, x)),
      box = element("div", null, "tip"),
      rows = element("table");
    box.append(element("strong", `at least ${percent(DATA.steps[step])} of the fastest speed in`));
    for (const [name, , curve] of [...curves].sort((a, b) => b[2][step] - a[2][step])) {
      const row = element("tr"),
        title = element("td");
      title.append(swatch(name), nameText(name));
      row.append(title, element("td", percent(curve[step]), "number"));
      rows.append(row);
    }
    box.append(rows);
    return box;
  };
  if (curves.length)
    plan(place, {
      animation: false,
      grid: { left: 50, right: 16, top: 28, bottom: 44 },
      series,
      xAxis: {
        ...common,
        name: "at least this share of the fastest speed",
        nameLocation: "middle",
        nameGap: 28,
        min: DATA.steps[0],
        max: 1,
      },
      yAxis: { ...common, name: "share of cells", min: 0, max: 1 },
      tooltip: { trigger: "axis", axisPointer: { snap: true }, ...tooltipStyle(), formatter: (hit) => tip((hit[0] ?? hit).value[0]) },
    });
}
