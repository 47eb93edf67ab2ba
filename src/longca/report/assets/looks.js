// One look for each kernel on the whole page: a colour, and a shape of its markers where a colour comes again.
const COLOURS = 12;
const SYMBOLS = ["circle", "rect", "triangle", "diamond"];
const LOOKS = new Map(DATA.looks.map(([name, number, turn, simulated]) => [name, { number, turn, simulated }]));
const BEST_FEW = 5;

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const theme = () => ({
  paper: css("--paper"),
  ink: css("--ink"),
  quiet: css("--quiet"),
  line: css("--line"),
  faint: css("--faint"),
  panel: css("--panel"),
});

function lookOf(name) {
  const { number, turn, simulated } = LOOKS.get(name) ?? { number: 0, turn: 0, simulated: false };
  return {
    colour: css(`--s${number % COLOURS}`),
    symbol: SYMBOLS[(Math.floor(number / COLOURS) + turn) % SYMBOLS.length],
    hollow: simulated,
  };
}

// The kernels of the chosen setting and pass: those with a rank, the closest to the fastest first, then all others.
function orderedLines() {
  const ranked = (setting().order.find(([pass]) => pass === passNow())?.[1] ?? []).map(([name]) => name);
  const timed = cellsNow()
    .filter(({ tflops }) => tflops !== null)
    .map(({ line }) => line);
  return unique([...ranked, ...timed]);
}

// "colour", "grey" or "hidden": the best few are coloured unless the reader chose others.
function modeOf(name, order) {
  if (state.hide.includes(name)) return "hidden";
  const coloured = state.show ?? order.slice(0, BEST_FEW);
  return coloured.includes(name) ? "colour" : "grey";
}

// Where everything was simulated on one cluster, that is said once and not in every name.
const nameText = (name) => (setting().suffix && name.endsWith(setting().suffix) ? name.slice(0, -setting().suffix.length) : name);

function swatch(name) {
  const { colour, symbol, hollow } = lookOf(name),
    made = element("span", null, `swatch ${symbol}`);
  made.style.setProperty("--c", colour);
  if (hollow) made.classList.add("hollow");
  return made;
}

// A mask without bands and blocks has no picture.
function maskPicture(known, name) {
  if (!known?.shades) return null;
  const canvas = element("canvas", null, "picture");
  canvas.width = known.shades[0].length;
  canvas.height = known.shades.length;
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", `The mask ${name}: queries down, keys across, dark is visible`);
  const context = canvas.getContext("2d");
  context.fillStyle = css("--ink");
  known.shades.forEach((row, y) =>
    [...row].forEach((digit, x) => {
      context.globalAlpha = parseInt(digit, 16) / 15;
      context.fillRect(x, y, 1, 1);
    }),
  );
  return canvas;
}

function maskWords(known) {
  return known
    ? `${(100 * known.density).toFixed(1)} % visible at ${sizeText(known.seqlen)}${known.params && ", " + known.params} (seed ${known.seed})`
    : "";
}
