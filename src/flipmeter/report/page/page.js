"use strict";
// The page reads whole without this. It adds sorting, filters, and the prompts of an opened item.

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

for (const table of document.querySelectorAll("table.plain, table.forest")) {
  if (table.tBodies.length === 0 || table.rows.length < 3) continue;
  for (const head of table.tHead.rows[0].cells) {
    if (head.tagName !== "TH" || head.querySelector("svg")) continue;
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    button.addEventListener("click", () => sortBy(table, head));
    head.append(button);
  }
}

// --- filter and order the flipped items, some at a time
const STEP = 50;
const form = document.querySelector("form.filters");
const list = document.querySelector(".list");
if (form && list) {
  const flips = [...list.children];
  const status = document.querySelector(".count");
  const more = document.createElement("button");
  let room = STEP;
  const all = status.textContent;

  const fits = (flip, wanted) =>
    wanted.every(([name, value]) =>
      name === "text"
        ? flip.textContent.toLowerCase().includes(value.toLowerCase())
        : flip.dataset[name] === value,
    );

  const order = {
    "": () => 0,
    distance: (a, b) => Number(b.dataset.distance) - Number(a.dataset.distance),
    item: (a, b) => nameOf(a).localeCompare(nameOf(b), undefined, { numeric: true }),
  };
  const nameOf = (flip) => flip.querySelector(".item").textContent;

  const apply = () => {
    const set = [...new FormData(form)].filter(([name, value]) => name !== "order" && value);
    let n = 0;
    for (const flip of list.children) {
      const isFit = fits(flip, set);
      n += isFit;
      flip.hidden = !isFit || n > room;
      if (flip.hidden) flip.open = false;
    }
    status.textContent = set.length ? `${n} of ${flips.length} flips fit` : all;
    more.hidden = n <= room;
    more.textContent = `Show ${Math.min(STEP, n - room)} more of ${n}`;
  };

  const start = () => {
    room = STEP;
    list.append(...[...flips].sort(order[form.elements.order.value]));
    apply();
  };

  form.addEventListener("input", start);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", () => setTimeout(start));
  more.type = "button";
  more.className = "further";
  more.addEventListener("click", () => {
    const next = list.children[room];
    room += STEP;
    apply();
    next?.querySelector("summary").focus();
  });
  list.after(more);
  form.hidden = false;
  apply();
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

for (const flip of document.querySelectorAll("details.flip")) {
  flip.addEventListener("toggle", () => flip.open && fill(flip));
}
