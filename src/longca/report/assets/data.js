// The data, which Python computed, and small helpers. Text reaches the page through textContent only; names are keys of Maps, never of
// objects.
const packed = Uint8Array.from(atob(document.getElementById("data").textContent), (letter) => letter.charCodeAt(0));
const DATA = await new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"))).json();
const PASS_WORDS = new Map(DATA.passes);
const STATUS = new Map(DATA.statuses.map(([name, words, never]) => [name, { words, never }]));
const COUNT = DATA.count;

// Columns: for each record a value. Fields are those of the journal, names what the page calls a record.
const FIELDS = new Map(DATA.fields),
  NAMES = new Map(DATA.names);
const columnOf = (name) => NAMES.get(name) ?? FIELDS.get(name);
const get = (record, name) => columnOf(name)?.[record] ?? null;
const statusOf = (record) => STATUS.get(get(record, "status"));
const fieldsOf = (record) => [...FIELDS.keys()].map((name) => [name, get(record, name)]);

const unique = (values) => [...new Set(values)];
const groupBy = (items, key) => {
  const groups = new Map();
  for (const item of items) {
    const own = key(item);
    if (!groups.has(own)) groups.set(own, []);
    groups.get(own).push(item);
  }
  return groups;
};

function sizeText(n) {
  for (const [letter, unit] of [
    ["G", 2 ** 30],
    ["M", 2 ** 20],
    ["K", 1024],
  ])
    if (n && n % unit === 0) return n / unit + letter;
  return String(n);
}

function numberText(value) {
  if (value === null || value === undefined) return "";
  if (typeof value !== "number" || Number.isInteger(value)) return String(value);
  const size = Math.abs(value);
  return size !== 0 && (size < 1e-3 || size >= 1e6) ? value.toExponential(2) : String(Number(value.toPrecision(4)));
}

// Three digits, from 100 on without a fraction; 1,234,567 where a number is large.
function figureText(value) {
  if (value === null || value === undefined) return "";
  if (value !== 0 && Math.abs(value) < 1e-3) return value.toExponential(1);
  return Math.abs(value) >= 100 ? Math.round(value).toLocaleString("en-US") : String(Number(value.toPrecision(3)));
}

const rangeText = ([low, high]) => `${figureText(low)} to ${figureText(high)}`;
const shareText = (value) => `${(100 * value).toFixed(value < 0.1 ? 1 : 0)} %`;
const placeText = (axis, x) => (axis === "seqlen" ? sizeText(x) : axis === "ratio" ? shareText(x) : String(x));
const axisTitle = (axis) => ({ seqlen: "tokens", ratio: "visible share of the blocks", ranks: `${setting().place}s` })[axis];

function element(tag, text, className) {
  const made = document.createElement(tag);
  if (text !== undefined && text !== null) made.textContent = text;
  if (className) made.className = className;
  return made;
}

// Long names may break after an underscore, a colon or a comma.
function breakable(text, tag = "span", className) {
  const made = element(tag, null, className);
  String(text)
    .split(/(?<=[_:,])/)
    .forEach((part, i) => made.append(...(i ? [element("wbr"), part] : [part])));
  return made;
}

function button(text, action, className) {
  const made = element("button", text, className);
  made.type = "button";
  made.addEventListener("click", action);
  return made;
}

function fieldList(fields) {
  const list = element("div", null, "fields");
  for (const [name, value] of fields) {
    if (value === null || value === "" || value === undefined) continue;
    const entry = element("div");
    entry.append(element("b", name + " "), Array.isArray(value) ? value.map(numberText).join(", ") : numberText(value));
    list.append(entry);
  }
  return list;
}

const option = (value, text = value) => Object.assign(element("option", text), { value });

function saveAs(url, name) {
  const link = element("a");
  link.href = url;
  link.download = name;
  link.click();
}
