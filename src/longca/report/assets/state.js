// What the reader chose. All of it stands in the address after the #, so that a view can be sent; what is as at the start is left out.
const START = {
  setting: DATA.settings[DATA.start]?.title ?? "",
  pass: "",
  measure: "tflops",
  base: "",
  scale: "linear",
  chart: "lines",
  at: "",
  tint: "kernel",
  board: "coverage",
  place: "",
  panel: "",
  section: "",
  filter: "",
  sort: "",
  theme: "",
  zoom: "",
};
const CHOICES = {
  scale: ["linear", "log"],
  chart: ["lines", "bars"],
  tint: ["kernel", "limit", "ahead"],
  board: ["coverage", "error", "peak", "limit", "close"],
  theme: ["", "light", "dark"], // "" is the theme of the system
};
// Kernels to show (null: the best five) and to hide.
const LISTS = ["show", "hide"];
const state = { ...START, show: null, hide: [] };
const listeners = [];

function readState() {
  const given = new URLSearchParams(location.hash.slice(1));
  for (const name of Object.keys(START)) state[name] = given.get(name) ?? START[name];
  state.show = given.has("show") ? given.getAll("show").filter(Boolean) : null;
  state.hide = given.getAll("hide");
  for (const [name, choices] of Object.entries(CHOICES)) if (!choices.includes(state[name])) state[name] = START[name];
  if (!DATA.settings.some(({ title }) => title === state.setting)) state.setting = START.setting;
}

function stateText() {
  const written = new URLSearchParams();
  for (const name of Object.keys(START)) if (state[name] !== START[name]) written.set(name, state[name]);
  for (const name of LISTS) {
    for (const entry of state[name] ?? []) written.append(name, entry);
    if (name === "show" && state.show && !state.show.length) written.append("show", "");
  }
  return written.toString();
}

// Changes the state, writes the address and draws what depends on it.
function setState(changes) {
  Object.assign(state, changes);
  try {
    history.replaceState(null, "", `#${stateText()}`);
  } catch {
    // a page inside a notebook has no address of its own
  }
  for (const [wanted, draw, last] of listeners) {
    if (!wanted.some((name) => name in changes)) continue;
    draw();
    if (last) return;
  }
}

// Calls `draw` when one of these parts of the state changes; after one that draws everything no other is called.
const onState = (names, draw, everything = false) => listeners.push([names, draw, everything]);

const setting = () => DATA.settings.find(({ title }) => title === state.setting) ?? DATA.settings[0];
const passNow = () => (setting().passes.includes(state.pass) ? state.pass : setting().passes[0]);
// Cells: one per kernel, mask, pass and place on the axis. Records are known by their number, which is -1 where there is none.
const cellsNow = () => setting().cells.filter(({ pass }) => pass === passNow());

// A zoom in the address: "25-75" is a part of the axis in percent, "" is all of it. Anything else counts as "".
function zoomRange(text) {
  const [, start, end] = (/^([\d.]+)-([\d.]+)$/.exec(text) ?? []).map(Number);
  return start < end && end <= 100 ? { start, end } : { start: 0, end: 100 };
}
const zoomText = ({ start, end }) => (start > 0 || end < 100 ? [start, end].map((percent) => Number(percent.toFixed(3))).join("-") : "");

// Fills a select whose value is one part of the state.
function bindSelect(id, name, options, value) {
  const select = document.getElementById(id);
  select.replaceChildren(...options);
  select.value = value;
  select.onchange = () => setState({ [name]: select.value });
}

// Buttons of which one is pressed.
function bindButtons(id, name, entries, value) {
  document.getElementById(id).replaceChildren(
    ...entries.map(([key, text]) => {
      const made = button(text, () => setState({ [name]: key }));
      made.setAttribute("aria-pressed", String(key === value));
      made.dataset.value = key;
      return made;
    }),
  );
}
