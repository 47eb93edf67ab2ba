"use strict";
// Puts the page together.

function setTheme(name) {
  document.documentElement.dataset.theme = name;
  document.getElementById("theme").textContent = name === "dark" ? "Light" : "Dark";
}

function environments() {
  const place = document.getElementById("environments");
  place.append(element("p", "Each record names its environment. The same command on the same device and versions measures the same cell again; click a record above for its command.", "note"));
  for (const [title, facts] of DATA.environments) {
    const box = element("div", null, "detail");
    box.append(element("h3", title), fieldList(facts));
    place.append(box);
  }
}

function start() {
  const select = document.getElementById("setting"), chosen = () => Number(select.value);
  document.title = document.getElementById("title").textContent = DATA.title;
  for (const name of ["about", "letters", "practical"]) document.getElementById(name).textContent = DATA[name];
  select.append(...DATA.settings.map(({ title }, number) => option(String(number), title)));
  select.addEventListener("change", () => draw(chosen()));
  setTheme(matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  document.getElementById("theme").addEventListener("click", () => {
    setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark");
    draw(chosen());
  });
  draw(chosen());
  setUpTable();
  environments();
  document.documentElement.dataset.ready = String(Math.round(performance.now()));
}

start();
