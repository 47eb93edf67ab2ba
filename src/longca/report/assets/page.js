// Puts the page together, and draws again what a change of the state touches.

const themeNow = () => state.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
const otherTheme = () => (themeNow() === "dark" ? "light" : "dark");

function setTheme() {
  document.documentElement.dataset.theme = themeNow();
  document.getElementById("theme").textContent = otherTheme() === "dark" ? "Dark" : "Light";
}

// A table that is wider than its box says so; the head of one that fits stays in sight below the bar.
function watchOverflow() {
  const bar = document.getElementById("bar").offsetHeight || document.querySelector("nav").offsetHeight; // a phone keeps the links only
  const boxes = [...document.querySelectorAll(".wide")].map((box) => [box, box.scrollWidth - box.clientWidth]);
  document.documentElement.style.setProperty("--bar", `${bar}px`);
  for (const [box, over] of boxes) {
    const mark = () => box.classList.toggle("more", over - box.scrollLeft > 4);
    box.classList.toggle("fits", over <= 0);
    mark();
    box.onscroll = mark;
  }
}

// Another setting has other kernels, masks and places: what was chosen among them is forgotten.
function drawHead() {
  for (const word of document.querySelectorAll(".line-word")) word.textContent = setting().line;
  bindSelect(
    "setting",
    "setting",
    DATA.settings.map(({ title }) => option(title)),
    setting().title,
  );
  document.getElementById("setting").onchange = (event) =>
    setState({ setting: event.target.value, show: null, hide: [], panel: "", at: "", place: "", base: "", zoom: "" });
  bindButtons(
    "pass",
    "pass",
    setting().passes.map((pass) => [pass, { fwd: "Forward", bwd: "Backward" }[pass] ?? "Both"]),
    passNow(),
  );
}

function drawSetting() {
  drawHead();
  drawAnswer();
  drawFailures();
  drawMultiples();
  drawCurve();
  drawBoard();
  drawEnlarged();
}

// Everything that has colours of its own; the others take theirs from the styles.
function drawColoured() {
  setTheme();
  drawSetting();
}

function scrollToSection() {
  const place = document.getElementById(state.section);
  if (place) place.scrollIntoView();
}

function setUp() {
  document.title = document.getElementById("title").textContent = DATA.title;
  for (const name of ["about", "confidence", "repeats"]) document.getElementById(name).textContent = DATA[name];
  document.getElementById("theme").addEventListener("click", () => setState({ theme: otherTheme() }));
  for (const link of document.querySelectorAll("nav a, .skip"))
    link.addEventListener("click", (event) => {
      event.preventDefault();
      setState({ section: link.hash.slice(1) });
      scrollToSection();
      if (link.className === "skip") document.getElementById("matrix").focus();
    });
  readByKeys(document.getElementById("curve"));
  for (const dialog of document.querySelectorAll("dialog")) {
    dialog.addEventListener("click", (event) => {
      if (event.target === dialog) dialog.close();
    });
    dialog.querySelector(".close").addEventListener("click", () => dialog.close());
  }
  document.getElementById("enlarged").addEventListener("close", () => {
    if (state.panel) setState({ panel: "", zoom: "" });
  });
  document.getElementById("link").addEventListener("click", (event) => copied(location.href, event.target));
  addEventListener("hashchange", () => {
    readState();
    drawColoured();
    updateTable();
    scrollToSection();
  });
  addEventListener("resize", watchOverflow);
}

function start() {
  readState();
  setUp();
  onState(["theme"], drawColoured, true);
  onState(["setting", "pass"], drawSetting, true);
  onState(["tint"], drawAnswer);
  onState(["measure", "base", "scale", "chart", "at", "show", "hide"], drawMultiples);
  onState(["show", "hide"], drawCurve);
  onState(["board", "place"], drawBoard);
  onState(["filter", "sort"], updateTable);
  onState(["panel", "measure", "base", "scale", "chart", "at", "show", "hide"], drawEnlarged);
  drawColoured();
  setUpTable();
  drawEnvironments();
  scrollToSection();
  document.documentElement.dataset.ready = String(Math.round(performance.now()));
}

start();

// For the console of the browser, and for tests: a module keeps its names to itself.
Object.assign(globalThis, { DATA, state, setState, cellsNow, showCell, csvText, view, drawn, pending, paint, css, watchOverflow });
