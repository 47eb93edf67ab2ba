"use strict";
// Puts the page together.

function setTheme(name) {
  document.documentElement.dataset.theme = name;
  document.getElementById("theme").textContent = name === "dark" ? "Light" : "Dark";
}

function environments() {
  const place = document.getElementById("environments");
  place.append(element("p", "Each record names its environment. The same command on the same device and versions measures the same cell again; click a record above for its command.", "note"));
  for (const [name, facts] of Object.entries(DATA.environments)) {
    const flat = {};
    for (const [key, value] of Object.entries(facts)) {
      if (value !== null && typeof value === "object" && !Array.isArray(value)) for (const [inner, v] of Object.entries(value)) flat[`${key}.${inner}`] = v;
      else flat[key] = value;
    }
    const box = element("div", null, "detail");
    box.append(element("h3", `${facts.device || "unknown device"} (${name})`), fieldList(flat));
    place.append(box);
  }
}

function start() {
  const select = document.getElementById("setting"), counts = [...groupBy(RECORDS, "status")].map(([status, group]) => `${group.length} ${status}`);
  document.title = document.getElementById("title").textContent = DATA.title;
  document.getElementById("about").textContent = `${RECORDS.length} records (${counts.join(", ")}) from ${DATA.folders.join(", ")}; written by longca ${DATA.longca}.`;
  select.append(...SETTINGS.map((name) => element("option", name)));
  select.addEventListener("change", () => draw(select.value));
  setTheme(matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  document.getElementById("theme").addEventListener("click", () => {
    setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark");
    draw(select.value);
  });
  draw(select.value);
  setUpTable();
  environments();
  document.documentElement.dataset.ready = String(Math.round(performance.now()));
}

start();
