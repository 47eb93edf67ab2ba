"use strict";
// The records, what names them, and small helpers. Text reaches the page through textContent only.
const DATA = JSON.parse(document.getElementById("data").textContent);
const RECORDS = DATA.rows.map((row) => Object.fromEntries(DATA.columns.map((name, i) => [name, row[i]])));
const PASSES = ["fwd", "bwd", "fwd+bwd"];
const PASS_WORDS = { fwd: "forward", bwd: "backward", "fwd+bwd": "forward and backward" };
const MARKS = { unsupported: "X", unavailable: "X", oom: "M", wrong: "W", timeout: "T", error: "E", invalid: "E", "left out by rule": "L" };
const MARK_WORDS = { unsupported: "unsupported", unavailable: "unavailable", oom: "out of memory", wrong: "wrong", timeout: "timed out", error: "error", invalid: "invalid", "left out by rule": "not run, left out by rule" };
const NEVER_RAN = new Set(["X", "L"]); // letters of what nobody could, or would, run
const neverRan = (r) => NEVER_RAN.has(MARKS[r.status]);
// The record that tells why there is no time: a wrong one before all others, one that a rule left out only where nothing else is known.
const untimed = (records) => records.find((r) => r.status === "wrong") || records.find((r) => r.status !== "ok" && MARKS[r.status] !== "L") || records.find((r) => r.status !== "ok");
const TENSORS = { fwd: ["out", "lse"], bwd: ["dq", "dk", "dv"], "fwd+bwd": ["out", "lse", "dq", "dk", "dv"] }; // what a pass computes

// What is derived is no field of the record, so lists of fields pass over it.
const derive = (r, name, value) => Object.defineProperty(r, name, { value });

// What was simulated says so in its name, so that no list and no legend mixes it up with what was measured.
const simulated = (r) => (r.simulated ? `, simulated on ${r.simulated}` : "");
for (const [i, r] of RECORDS.entries()) {
  derive(r, "command", DATA.commands[i]);
  derive(r, "homes", DATA.homes[i]); // the journals that hold it, by number
  derive(r, "problem", DATA.problems[i]); // the mask, with its parameters where there are several
  derive(r, "same", DATA.same[i]); // the simpler mask that this one is at this length, if it is
  derive(r, "family", r.problem.replace(/ ratio=\S+/, "")); // the same at every share of visible blocks
  derive(r, "base", r.method ? `${DATA.kernels[i]} ${r.method}` : DATA.kernels[i]); // what has one colour on the whole page
  derive(r, "split", r.base + simulated(r));
  derive(r, "line", (r.method ? `${DATA.kernels[i]} ${r.method} ×${r.ranks}` : DATA.kernels[i]) + simulated(r));
  derive(r, "ratio", JSON.parse(r.params).ratio ?? null);
  const dims = r.head_dim === r.head_dim_v ? r.head_dim : `${r.head_dim}/${r.head_dim_v}`;
  derive(r, "setting", `${r.device || "unknown device"} · ${r.level} · ${r.heads_q}:${r.heads_kv} heads of ${dims} · ${r.dtype}${r.deterministic ? " · deterministic" : ""}`);
}

const unique = (values) => [...new Set(values)];
const SETTINGS = unique(RECORDS.map((r) => r.setting));
const groupBy = (records, name) => {
  const groups = new Map();
  for (const r of records) {
    const key = typeof name === "function" ? name(r) : r[name];
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push(r);
  }
  return groups;
};

function median(values) {
  if (!values.length) return null;
  const sorted = [...values].sort((a, b) => a - b);
  const half = sorted.length >> 1;
  return sorted.length % 2 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

function sizeText(n) {
  for (const [letter, unit] of [["G", 2 ** 30], ["M", 2 ** 20], ["K", 1024]]) if (n && n % unit === 0) return n / unit + letter;
  return String(n);
}

function numberText(value) {
  if (value === null || value === undefined) return "";
  if (typeof value !== "number" || Number.isInteger(value)) return String(value);
  const size = Math.abs(value);
  return size !== 0 && (size < 1e-3 || size >= 1e6) ? value.toExponential(2) : String(Number(value.toPrecision(4)));
}

function element(tag, text, className) {
  const made = document.createElement(tag);
  if (text !== undefined && text !== null) made.textContent = text;
  if (className) made.className = className;
  return made;
}

function fieldList(record) {
  const list = element("div", null, "fields");
  for (const [name, value] of Object.entries(record)) {
    if (value === null || value === "" || value === undefined) continue;
    const entry = element("div");
    entry.append(element("b", name + " "), Array.isArray(value) ? value.join(", ") : numberText(value));
    list.append(entry);
  }
  return list;
}
