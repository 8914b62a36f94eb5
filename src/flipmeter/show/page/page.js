"use strict";
// The page reads whole without this. It adds sorting, filters, and the prompts of an opened item.

const made = (tag, about = {}, ...parts) => {
  const one = Object.assign(document.createElement(tag), about);
  one.append(...parts);
  return one;
};
const button = (text, act, about = {}) => {
  const one = made("button", { type: "button", textContent: text, ...about });
  one.addEventListener("click", () => act(one));
  return one;
};

// --- sort a table by a column: numbers by data-sort, words by the alphabet
const keyOf = (row, column) => {
  const cell = row.cells[column];
  if (!cell) return "";
  return cell.dataset.sort ?? cell.textContent.trim();
};

const byKey = (column, sign) => (a, b) => {
  const [x, y] = [keyOf(a, column), keyOf(b, column)];
  if ((x === "") !== (y === "")) return x === "" ? 1 : -1; // what has no number stays last
  const [p, q] = [Number(x), Number(y)];
  if (!Number.isNaN(p) && !Number.isNaN(q)) return sign * (p - q);
  return sign * x.localeCompare(y, undefined, { numeric: true });
};

const sortBy = (table, head) => {
  const isRising = head.getAttribute("aria-sort") !== "ascending";
  for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", isRising ? "ascending" : "descending");
  for (const body of table.tBodies) {
    const rows = [...body.rows].filter((row) => !row.classList.contains("group"));
    rows.sort(byKey(head.cellIndex, isRising ? 1 : -1));
    body.append(...rows);
  }
};

for (const table of document.querySelectorAll("table.plain, table.forest, table.matrix, table.heat")) {
  if (table.tBodies.length === 0 || table.rows.length < 3) continue; // one row has no order
  for (const head of table.tHead.rows[0].cells) {
    if (head.tagName !== "TH" || head.querySelector("svg")) continue;
    const parts = [...head.childNodes];
    const sort = button("", () => sortBy(table, head));
    sort.append(...parts);
    head.append(sort);
  }
}

// --- copy a text, as it was sent where that is served; where the browser does not let us, select it
const textOf = async (source) => {
  if (!source.dataset.raw) return source.textContent;
  const answer = await fetch(source.dataset.raw);
  return answer.ok ? answer.text() : source.textContent;
};

const copied = async (copy, source) => {
  try {
    await navigator.clipboard.writeText(await textOf(source));
    copy.textContent = "Copied";
  } catch {
    getSelection().selectAllChildren(source);
    copy.textContent = "Selected";
  }
  setTimeout(() => (copy.textContent = "Copy"), 2000);
};

const addCopy = (source, what) => {
  const about = { className: "copy", ariaLabel: `Copy ${what}` };
  source.after(button("Copy", (copy) => copied(copy, source), about));
};

for (const code of document.querySelectorAll(".command code")) addCopy(code, "the command");
const addCopies = (place) => {
  for (const text of place.querySelectorAll("pre[data-copy]")) addCopy(text, text.dataset.copy);
};

// --- a prompt opens at the text of the item: what stands before it is often long
const showItem = (place) => {
  for (const prompt of place.querySelectorAll(".prompt")) {
    const own = [...prompt.querySelectorAll(".own")].at(-1);
    if (!own) continue;
    const above = own.getBoundingClientRect().top - prompt.getBoundingClientRect().top;
    prompt.scrollTop += above - prompt.clientHeight / 3;
  }
};

// --- filter and order the flipped items, some at a time; the address keeps what is chosen
const STEP = 50;
const ITEMS = "#items?";
const form = document.querySelector("form.filters");
const list = document.querySelector(".list");
if (form && list) {
  const flips = [...list.children];
  const status = document.querySelector(".count");
  const showMore = () => {
    const next = list.children[room];
    room += STEP;
    apply();
    next?.querySelector("summary").focus();
  };
  const more = button("", showMore, { className: "further" });
  let room = STEP;
  const all = status.textContent;

  const fits = (flip, wanted) =>
    wanted.every(([name, value]) => {
      if (name === "text") return flip.textContent.toLowerCase().includes(value.toLowerCase());
      const own = flip.dataset[name];
      return own === value || (name === "contrast" && own.startsWith(`${value}:`));
    });

  const order = {
    "": () => 0,
    distance: (a, b) => Number(b.dataset.distance) - Number(a.dataset.distance),
    item: (a, b) => nameOf(a).localeCompare(nameOf(b), undefined, { numeric: true }),
  };
  const nameOf = (flip) => flip.querySelector(".item").textContent;
  const told = n => n.toLocaleString("en");
  const chosen = () => [...new FormData(form)].filter(([, value]) => value);

  const apply = () => {
    const set = chosen().filter(([name]) => name !== "order");
    let n = 0;
    for (const flip of list.children) {
      const isFit = fits(flip, set);
      n += isFit;
      flip.hidden = !isFit || n > room;
      if (flip.hidden) flip.open = false;
    }
    status.textContent = set.length ? `${told(n)} of ${told(flips.length)} flips fit` : all;
    more.hidden = n <= room;
    more.textContent = `Show ${Math.min(STEP, n - room)} more of ${told(n)}`;
  };

  const start = () => {
    room = STEP;
    list.append(...[...flips].sort(order[form.elements.order.value]));
    apply();
  };

  const remember = () => {
    const query = new URLSearchParams(chosen()).toString();
    history.replaceState(null, "", query ? ITEMS + query : "#items");
  };

  // Set the filters that an address names; a menu that is not there has one value only.
  const read = (query) => {
    form.reset();
    for (const [name, value] of new URLSearchParams(query)) {
      const field = form.elements.namedItem(name); // elements.item is a method
      if (field) field.value = value;
    }
    start();
    (document.getElementById("each") ?? document.getElementById("items")).scrollIntoView();
  };

  const follow = () => location.hash.startsWith(ITEMS) && read(location.hash.slice(ITEMS.length));

  form.addEventListener("input", () => {
    start();
    remember();
  });
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", () =>
    setTimeout(() => {
      start();
      remember();
    }),
  );
  list.after(more);
  form.hidden = false;
  apply();

  for (const link of document.querySelectorAll("a[data-query]")) {
    link.setAttribute("href", ITEMS + link.dataset.query);
  }
  addEventListener("hashchange", follow);
  follow();
}

// --- put the two prompts into an item when it is opened; texts are only ever set as text
const fill = (flip) => {
  const link = flip.querySelector(".prompts a");
  if (!link) return;
  const frame = document.getElementById(link.hash.slice(1));
  const pair = frame.cloneNode(true);
  pair.removeAttribute("id");
  const text = flip.querySelector(".text").textContent;
  for (const gap of pair.querySelectorAll(".gap")) {
    gap.textContent = text;
    gap.className = "own";
  }
  link.parentNode.replaceWith(pair);
};

const openUp = (place) => {
  fill(place);
  addCopies(place);
  showItem(place);
};
for (const flip of document.querySelectorAll("details.flip")) {
  flip.addEventListener("toggle", () => openUp(flip), { once: true });
}
for (const pair of document.querySelectorAll(".opened ~ section .pair")) openUp(pair);
