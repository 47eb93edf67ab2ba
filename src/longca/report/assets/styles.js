"use strict";
// One look for each name on the whole page: a kernel (with its method) has one colour; its ranks differ in marker and dash.
const DASHES = [[], [8, 4], [2, 3], [10, 3, 2, 3], [5, 5]];
const DENSE_DASHES = [[14, 3], [6, 3], [2, 2]];
const COLOURS = 12, SHAPES = 4;
const LOOKS = new Map(); // the look of each line by its name

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// Numbers for kernels: those that stand in one setting, or were measured in one run, get different colours as long as there are any.
function numbered() {
  const homes = groupBy(RECORDS.flatMap((r) => r.homes.map((home) => ({ home, base: r.base }))), "home");
  const groups = [...groupBy(RECORDS, "setting").values(), ...homes.values()].map((group) => unique(group.map((r) => r.base)));
  const timed = new Set(RECORDS.filter((r) => r.status === "ok").map((r) => r.base)), numbers = new Map();
  for (const base of groups.flatMap((group) => [...group].sort().sort((a, b) => timed.has(b) - timed.has(a)))) {
    if (numbers.has(base)) continue;
    const beside = unique(groups.filter((group) => group.includes(base)).flat()).filter((other) => numbers.has(other)).map((other) => numbers.get(other) % COLOURS);
    const taken = new Set(numbers.values()), free = [...Array(taken.size + COLOURS).keys()].filter((i) => !taken.has(i));
    const alike = (i) => beside.filter((colour) => colour === i % COLOURS).length;
    numbers.set(base, free.reduce((best, i) => (alike(i) < alike(best) ? i : best)));
  }
  return numbers;
}

function setUpLooks() {
  const numbers = numbered();
  for (const [, group] of groupBy(RECORDS, (r) => JSON.stringify([r.base, Boolean(r.simulated)]))) for (const name of ["line", "split"]) {
    const look = { number: numbers.get(group[0].base), simulated: Boolean(group[0].simulated) };
    unique([...group].sort((a, b) => (a.ranks || 0) - (b.ranks || 0)).map((r) => r[name])).forEach((own, turn) => LOOKS.set(own, { ...look, turn }));
  }
}

const lookOf = (name) => LOOKS.get(name);

// A colour that comes again has another shape. What was simulated has hollow markers and a thin dotted line, a dense mask beside patterns no kernel's colour and no marker.
function styleOf({ number, turn = 0, simulated = false, dense = null }) {
  const style = { color: css(`--s${number % COLOURS}`), shape: (number + Math.floor(number / COLOURS) + turn) % SHAPES, hollow: simulated };
  if (simulated) return { ...style, dash: [1, 4], width: 1.2 };
  return dense !== null ? { color: css("--ink"), shape: null, hollow: false, dash: DENSE_DASHES[dense % DENSE_DASHES.length], width: 1.6 } : { ...style, dash: DASHES[(number + turn) % DASHES.length], width: 1.8 };
}

function marker(context, { shape, hollow }, x, y, size) {
  if (shape === null) return;
  context.beginPath();
  if (shape === 0) context.arc(x, y, size, 0, 2 * Math.PI);
  else if (shape === 1) context.rect(x - size, y - size, 2 * size, 2 * size);
  else {
    const corners = shape === 2 ? [[0, -1.3], [1.2, 1], [-1.2, 1]] : [[0, -1.4], [1.4, 0], [0, 1.4], [-1.4, 0]];
    corners.forEach(([dx, dy], i) => (i ? context.lineTo(x + dx * size, y + dy * size) : context.moveTo(x + dx * size, y + dy * size)));
    context.closePath();
  }
  if (!hollow) return context.fill();
  context.save();
  context.setLineDash([]);
  context.lineWidth = size / 2.5;
  context.fillStyle = css("--paper");
  context.fill();
  context.stroke();
  context.restore();
}

function fillLegend(box, lines, look = lookOf) {
  box.replaceChildren(...lines.map((line) => {
    const entry = element("span"), key = element("canvas"), ratio = devicePixelRatio;
    [key.width, key.height] = [34 * ratio, 12 * ratio];
    [key.style.width, key.style.height] = ["34px", "12px"];
    const context = key.getContext("2d"), style = styleOf(look(line));
    context.scale(ratio, ratio);
    context.strokeStyle = context.fillStyle = style.color;
    context.lineWidth = style.width;
    context.setLineDash(style.dash);
    context.beginPath();
    context.moveTo(0, 6);
    context.lineTo(34, 6);
    context.stroke();
    marker(context, style, 17, 6, 3.5);
    entry.append(key, line);
    return entry;
  }));
}

setUpLooks();
