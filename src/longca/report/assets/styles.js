"use strict";
// One look for each name on the whole page: a kernel (with its method) has one colour; its ranks differ in marker and dash.
const DASHES = [[], [8, 4], [2, 3], [10, 3, 2, 3], [5, 5]];
const DENSE_DASHES = [[14, 3], [6, 3], [2, 2]];
const COLOURS = 12, SHAPES = 4;
const LOOKS = new Map(DATA.looks.map(([name, number, turn, simulated]) => [name, { number, turn, simulated }]));

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

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
