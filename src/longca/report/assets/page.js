"use strict";
// Puts the page together, and draws again what a change of the state touches.

function setTheme(name) {
  document.documentElement.dataset.theme = name;
  document.getElementById("theme").textContent = name === "dark" ? "Light" : "Dark";
}

// A table that is wider than its box says so.
function watchOverflow() {
  for (const box of document.querySelectorAll(".wide")) {
    const mark = () => box.classList.toggle("more", box.scrollWidth - box.clientWidth - box.scrollLeft > 4);
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
    setState({ setting: event.target.value, show: null, hide: [], panel: "", at: "", place: "", base: "" });
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

function scrollToSection() {
  const place = document.getElementById(state.section);
  if (place) place.scrollIntoView();
}

function setUp() {
  document.title = document.getElementById("title").textContent = DATA.title;
  for (const name of ["about", "practical"]) document.getElementById(name).textContent = DATA[name];
  document.getElementById("theme").addEventListener("click", () => {
    setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark");
    drawSetting();
    drawTimelines();
  });
  for (const link of document.querySelectorAll("nav a"))
    link.addEventListener("click", (event) => {
      event.preventDefault();
      setState({ section: link.hash.slice(1) });
      scrollToSection();
    });
  readByKeys(document.getElementById("curve"));
  for (const dialog of document.querySelectorAll("dialog")) {
    dialog.addEventListener("click", (event) => {
      if (event.target === dialog) dialog.close();
    });
    dialog.querySelector(".close").addEventListener("click", () => dialog.close());
  }
  document.getElementById("enlarged").addEventListener("close", () => {
    if (state.panel) setState({ panel: "" });
  });
  document.getElementById("link").addEventListener("click", (event) => copied(location.href, event.target));
  addEventListener("hashchange", () => {
    readState();
    drawSetting();
    document.getElementById("filter").value = state.filter;
    updateTable();
    scrollToSection();
  });
  addEventListener("resize", watchOverflow);
}

function start() {
  readState();
  setTheme(matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  setUp();
  onState(["setting", "pass"], drawSetting, true);
  onState(["tint"], drawAnswer);
  onState(["measure", "base", "scale", "chart", "at", "show", "hide"], drawMultiples);
  onState(["show", "hide"], drawCurve);
  onState(["board", "place"], drawBoard);
  onState(["panel", "measure", "base", "scale", "chart", "at", "show", "hide"], drawEnlarged);
  drawSetting();
  drawChanges();
  drawTimelines();
  setUpTable();
  drawEnvironments();
  scrollToSection();
  document.documentElement.dataset.ready = String(Math.round(performance.now()));
}

start();
