// Below the first screen: what failed.
const FIRST_NOTES = 6; // entries that are shown at once; the others are folded away

function folded(entries, words) {
  const list = element("ul", null, "notes");
  list.append(...entries.slice(0, FIRST_NOTES));
  if (entries.length <= FIRST_NOTES) return [list];
  const more = element("details"),
    rest = element("ul", null, "notes");
  rest.append(...entries.slice(FIRST_NOTES));
  more.append(element("summary", `${entries.length - FIRST_NOTES} more ${words}`), rest);
  return [list, more];
}

function few(names) {
  return names.length > 4 ? `${names.slice(0, 3).join(", ")} and ${names.length - 3} more` : names.join(", ");
}

function failureEntry({ status, words, reason, lengths, kernels, passes, masks, count, quiet }) {
  const entry = element("li", null, quiet ? "quiet" : "");
  const where = element("small", ` ${count} ${count === 1 ? "record" : "records"}; ${few(masks)}${lengths ? `; ${lengths}` : ""}`);
  where.title = masks.join(", ");
  entry.append(
    element("b", words, `status ${status}`),
    " ",
    breakable(few(kernels.map(nameText))),
    `, ${passes.join(", ")}: ${reason}`,
    where,
  );
  return entry;
}

function drawFailures() {
  const failed = setting().failures.filter(({ quiet }) => !quiet),
    quiet = setting().failures.filter((entry) => entry.quiet);
  const place = document.getElementById("failures-list");
  place.replaceChildren(
    ...(failed.length ? folded(failed.map(failureEntry), "reasons") : [element("p", "Nothing was wrong, and nothing failed.", "note")]),
  );
  if (!quiet.length) return;
  const box = element("details"),
    list = element("ul", null, "notes");
  list.append(...quiet.map(failureEntry));
  box.append(
    element(
      "summary",
      `${quiet.length} ${quiet.length === 1 ? "reason" : "reasons"} for what was not run: unsupported, not installed, or skipped`,
    ),
    list,
  );
  place.append(box);
}

function drawEnvironments() {
  const place = document.getElementById("environments");
  for (const [, title, facts] of DATA.environments) {
    const box = element("details", null, "detail");
    box.append(element("summary", title), fieldList(facts));
    box.open = DATA.environments.length === 1;
    place.append(box);
  }
}
