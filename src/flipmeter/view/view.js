"use strict";
// The pages read whole without this. It keeps the numbers of a run in progress up to date.

const SECOND = 1000;

// --- a run in progress: texts are only ever set as text
const put = (place, told) => {
  for (const one of place.querySelectorAll("[data-live]")) {
    const name = one.dataset.live;
    one.textContent = name === "state" ? told.state : told.facts[name];
  }
  const bar = place.querySelector("progress");
  if (bar) Object.assign(bar, { max: told.planned, value: told.done });
  const body = place.querySelector(".doors tbody");
  if (!body) return;
  body.replaceChildren(
    ...told.doors.map((door) => {
      const row = document.createElement("tr");
      row.append(
        ...door.map((text) => Object.assign(document.createElement("td"), { textContent: text })),
      );
      return row;
    }),
  );
};

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
