"use strict";
// The data, which Python computed, and small helpers. Text reaches the page through textContent only; names are keys of Maps, never of objects.
const DATA = JSON.parse(document.getElementById("data").textContent);
const PASS_WORDS = new Map(DATA.passes);
const STATUS = new Map(DATA.statuses.map(([name, letter, words, never]) => [name, { letter, words, never }]));
const PICTURES = new Map(DATA.pictures);

// A column holds each value once, and for each record the number of its value.
function decoded([name, values, packed]) {
  if (values.length === 1) return [name, { values, at: new Uint8Array(DATA.count) }];
  const text = atob(packed), bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return [name, { values, at: new (values.length <= 256 ? Uint8Array : values.length <= 65536 ? Uint16Array : Uint32Array)(bytes.buffer) }];
}
const FIELDS = new Map(DATA.fields.map(decoded)), NAMES = new Map(DATA.names.map(decoded));
const COUNT = DATA.count;
const get = (record, name) => { const column = NAMES.get(name) || FIELDS.get(name); return column ? column.values[column.at[record]] : null; };
const statusOf = (record) => STATUS.get(get(record, "status"));
const fieldsOf = (record) => [...FIELDS.keys()].map((name) => [name, get(record, name)]);
const commandOf = (record) => [0, 1, 2, 3, 4].map((part) => get(record, `command${part}`)).filter(Boolean).join(" ");

const unique = (values) => [...new Set(values)];
const groupBy = (items, key) => {
  const groups = new Map();
  for (const item of items) {
    if (!groups.has(key(item))) groups.set(key(item), []);
    groups.get(key(item)).push(item);
  }
  return groups;
};

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

const shareText = (value) => `${(100 * value).toFixed(value < 0.1 ? 1 : 0)} %`;

function element(tag, text, className) {
  const made = document.createElement(tag);
  if (text !== undefined && text !== null) made.textContent = text;
  if (className) made.className = className;
  return made;
}

function fieldList(fields) {
  const list = element("div", null, "fields");
  for (const [name, value] of fields) {
    if (value === null || value === "" || value === undefined) continue;
    const entry = element("div");
    entry.append(element("b", name + " "), Array.isArray(value) ? value.join(", ") : numberText(value));
    list.append(entry);
  }
  return list;
}

const option = (value, text = value) => Object.assign(element("option", text), { value });

// Fills a select, keeps what was chosen before where it is still there, and calls `draw` now and at each change.
function choose(id, options, start, draw) {
  const select = document.getElementById(id), before = select.value;
  select.replaceChildren(...options);
  select.value = [...select.options].some(({ value }) => before && value === before) ? before : start;
  select.onchange = () => draw(select.value);
  draw(select.value);
}
