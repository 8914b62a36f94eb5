"use strict";
// The pages read whole without this. It keeps the numbers of a run in progress up to date, moves by
// keys, and keeps notes and names in this browser.

const SECOND = 1000;

// --- a run in progress: texts are only ever set as text
const put = (place, told) => {
  for (const one of place.querySelectorAll("[data-live]")) {
    const name = one.dataset.live;
    one.textContent = name === "state" ? told.state : told.facts[name];
  }
  const bar = place.querySelector("progress");
  if (bar) Object.assign(bar, { max: told.planned, value: told.done });
  for (const body of place.querySelectorAll("[data-rows]")) {
    body.replaceChildren(...told[body.dataset.rows].map(rowOf));
  }
};

const rowOf = (texts) => made("tr", {}, ...texts.map((text) => made("td", {}, text)));

const watch = async (place) => {
  if (document.hidden) return true;
  const answer = await fetch(place.dataset.watch);
  const told = answer.ok ? await answer.json() : null;
  if (!told || !told.is_alive) {
    location.reload(); // it is over: what it left is another page
    return false;
  }
  put(place, told);
  return true;
};

const follow = (place) =>
  setTimeout(async () => {
    try {
      if (await watch(place)) follow(place);
    } catch {
      follow(place); // the server may be back soon
    }
  }, SECOND);

for (const place of document.querySelectorAll('[data-watch][data-alive="yes"]')) follow(place);

// --- what is still being made comes up by itself
for (const place of document.querySelectorAll("[data-reload]")) {
  setTimeout(() => location.reload(), place.dataset.reload * SECOND);
}

// --- what this browser keeps; it may be told to keep nothing
const kept = (name, otherwise) => {
  try {
    return JSON.parse(localStorage.getItem(name)) ?? otherwise;
  } catch {
    return otherwise;
  }
};
const keep = (name, value) => {
  try {
    localStorage.setItem(name, JSON.stringify(value));
    return true;
  } catch {
    return false;
  }
};

// --- j and k go on and back, unless someone is typing or has switched them off
const KEYS = "flipmeter keys";
for (const place of document.querySelectorAll("[data-keys]")) {
  const box = made("input", { type: "checkbox", checked: kept(KEYS, true) });
  box.addEventListener("change", () => keep(KEYS, box.checked));
  place.append(made("label", {}, box, " keys: k back, j on"));
  place.hidden = false;
  addEventListener("keydown", (event) => {
    const isWriting = event.target.closest("input, select, textarea, [contenteditable]");
    const isMore = event.ctrlKey || event.metaKey || event.altKey || event.shiftKey;
    if (!box.checked || isMore || (isWriting && isWriting !== box)) return;
    const link = { j: "next", k: "prev" }[event.key];
    document.querySelector(`a[rel="${link}"]`)?.click();
  });
}

// --- addresses saved by a name, for every run
const run = document.body.dataset.run ?? "";
for (const place of document.querySelectorAll("[data-save]")) {
  const name = `flipmeter saved ${place.dataset.save} ${run}`;
  const field = made("input", { type: "text", maxLength: 80, autocomplete: "off" });
  const list = made("ul");
  const show = () => {
    const saved = Object.entries(kept(name, {}));
    list.replaceChildren(
      ...saved.map(([title, query]) => {
        const link = made("a", { href: location.pathname + query, textContent: title });
        const forget = () => {
          keep(name, Object.fromEntries(saved.filter(([other]) => other !== title)));
          show();
          field.focus();
        };
        return made("li", {}, link, " ", button("Remove", forget, { ariaLabel: `Remove ${title}` }));
      }),
    );
  };
  const form = made("form", {}, made("label", {}, "Save this selection as ", field), " ");
  form.append(made("button", { type: "submit", textContent: "Save" }));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const title = field.value.trim();
    if (!title) return;
    keep(name, { ...kept(name, {}), [title]: location.search });
    field.value = "";
    show();
  });
  place.append(form, list);
  place.hidden = false;
  show();
}

// --- notes and tags on items: they stay in this browser
const NOTES = `flipmeter notes ${run}`;
const noteOf = (key) => kept(NOTES, {})[key] ?? { tags: "", note: "" };
const setNote = (key, told) => {
  const notes = kept(NOTES, {});
  if (told.tags || told.note) notes[key] = told;
  else delete notes[key];
  return keep(NOTES, notes);
};

for (const place of document.querySelectorAll("[data-noted]")) {
  const key = place.dataset.noted;
  const told = noteOf(key);
  const tags = made("input", { type: "text", value: told.tags, autocomplete: "off" });
  const note = made("textarea", { rows: 2, value: told.note });
  const state = made("span", { className: "why", role: "status" });
  const save = () => {
    const isKept = setNote(key, { tags: tags.value.trim(), note: note.value.trim() });
    state.textContent = isKept ? "Saved in this browser." : "This browser does not allow storage.";
  };
  for (const field of [tags, note]) field.addEventListener("change", save);
  place.append(made("label", {}, "Tags ", tags), made("label", {}, "Note ", note), state);
  place.hidden = false;
}

for (const place of document.querySelectorAll("[data-note]")) {
  const { tags, note } = noteOf(place.dataset.note);
  if (tags || note) {
    place.append(made("small", { className: "told", textContent: [tags, note].filter(Boolean).join(" · ") }));
  }
}

// A cell that begins like a formula would be run as one by a spreadsheet.
const quoted = (text) => {
  const safe = /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
  return `"${safe.replaceAll('"', '""')}"`;
};
const csvOf = (rows) => rows.map((row) => row.map(quoted).join(",")).join("\r\n") + "\r\n";

for (const place of document.querySelectorAll("[data-notes]")) {
  const body = place.querySelector("tbody");
  const rows = Object.entries(kept(NOTES, {})).map(([key, { tags, note }]) => [
    ...key.split("\t"),
    tags,
    note,
  ]);
  body.replaceChildren(
    ...rows.map((texts) => {
      const row = rowOf(texts);
      const query = new URLSearchParams({ dataset: texts[0], item: texts[1] });
      const link = made("a", { href: `/run/${run}/item?${query}`, textContent: texts[1] });
      row.cells[1].replaceChildren(link);
      return row;
    }),
  );
  place.querySelector("[role=status]").textContent = rows.length
    ? `${rows.length} item${rows.length === 1 ? "" : "s"} with notes or tags`
    : "No item has a note or a tag yet.";
  const save = button("Save as CSV", () => {
    const text = csvOf([["dataset", "item", "tags", "note"], ...rows]);
    const address = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
    made("a", { href: address, download: `notes-${run}.csv` }).click();
    setTimeout(() => URL.revokeObjectURL(address), SECOND);
  });
  save.disabled = place.querySelector(".scroll").hidden = rows.length === 0;
  place.querySelector(".scroll").after(save);
}
