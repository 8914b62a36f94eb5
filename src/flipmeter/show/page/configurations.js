"use strict";
// Draws the configurations on axes that the reader chooses. Without it there is one picture.
{

const TALL = 380;
const LABEL = { height: 14, gap: 4, halo: 5 }; // of a name, in pixels
const MOST_NAMES = 24;
const NARROW = 480; // the title of an axis must fit
const [LETTER, TICK] = [9, 60]; // room for a letter of a title, with gaps, and for a number

const inSvg = (tag, attributes, text = "") => {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.textContent = text;
  return element;
};

const menu = (title, options, chosen) => {
  const one = ([value, text]) => made("option", { value, selected: value === chosen }, text);
  const select = made("select", {}, ...options.map(one));
  return [made("label", {}, title, select), select];
};

const shown = (axis, ends) => {
  const [value, low, high] = ends.map((x) => (axis.unit ? (100 * x).toFixed(1) : String(+x.toFixed(2))));
  const unit = axis.unit ? " %" : "";
  return low === undefined ? `${value}${unit}` : `${value}${unit} [${low}, ${high}]`;
};

const near = (a, b) => Math.abs(a.x + a.w / 2 - b.x - b.w / 2) < 1.5 && Math.abs(a.y + a.h / 2 - b.y - b.h / 2) < 1.5;

const overlap = (a, b) => a.x < b.x + b.w && b.x < a.x + a.w && a.y < b.y + b.h && b.y < a.y + a.h;

// --- one figure: the menus above, the plot, and what was picked in it
const enliven = (figure) => {
  const data = JSON.parse(figure.querySelector('script[type="application/json"]').textContent);
  const place = figure.querySelector(".drawn");
  const axes = new Map(data.axes.map((axis) => [axis.name, axis]));
  const titles = data.axes.map((axis) => [axis.name, axis.title]);
  const [acrossMenu, across] = menu("Across ", titles, data.across);
  const [upMenu, up] = menu("Up ", titles, data.up);
  const [facetMenu, facet] = menu("Split by ", [["", "nothing"], ...data.facets.map((f) => [f, f])], "");
  const menus = made("form", { className: "axes", ariaLabel: `Axes, ${data.dataset}` });
  menus.append(acrossMenu, upMenu, ...(data.facets.length ? [facetMenu] : []));
  const picked = made("div", { className: "picked", ariaLive: "polite" });
  const held = made("div", { className: "held" });
  const hint = "Drag over dots, or move between them with the arrow keys and press Enter, to list them with links to their items.";
  let chosen = new Set();

  const told = (point) =>
    [across, up].map((one) => `${axes.get(one.value).title} ${shown(axes.get(one.value), point.values[one.value])}`);

  const list = (points) => {
    picked.replaceChildren();
    if (chosen.size === 0) {
      picked.append(made("p", { className: "how" }, hint));
      return;
    }
    const rows = made("ul");
    for (const point of points.filter((one) => chosen.has(one))) {
      const link = made("a", { href: figure.dataset.items + point.query }, point.name);
      const shares = `on the front in ${Math.round(100 * point.onFront)} %, chosen in ${Math.round(100 * point.chosen)} % of resamples`;
      rows.append(made("li", {}, link, `: ${told(point).join(", ")}; ${shares}`));
    }
    const clear = button("Clear", () => pick(points, []), { className: "further" });
    const n = chosen.size;
    picked.append(made("p", {}, made("strong", {}, `${n} configuration${n > 1 ? "s" : ""} picked`)), rows, clear);
  };

  const pick = (points, some) => {
    chosen = new Set(some);
    for (const [at, dot] of dots(held)) dot.classList.toggle("is-picked", chosen.has(points[at]));
    list(points);
  };

  const draw = () => {
    const [x, y, split] = [across.value, up.value, facet.value];
    // The front comes first in the data and is drawn last, on top.
    const points = data.points.filter((one) => one.values[x] && one.values[y]).reverse();
    held.replaceChildren();
    if (points.length === 0) {
      held.append(made("p", { className: "how" }, "No configuration has both numbers."));
      return;
    }
    const svg = plotted(points, axes.get(x), axes.get(y), split, place.clientWidth || 640);
    held.append(svg);
    const n = points.filter((one) => one.isFront).length;
    svg.setAttribute("role", "group");
    hush(svg);
    svg.setAttribute("aria-label", `${axes.get(y).title} against ${axes.get(x).title}: ${points.length} configurations, ${n} on the Pareto front`);
    name(svg, points);
    walk(svg, points, told, (at) => {
      const next = new Set(chosen);
      if (!next.delete(points[at])) next.add(points[at]);
      pick(points, next);
    });
    brush(svg, (some) => pick(points, some.map((at) => points[at])));
    pick(points, [...chosen].filter((one) => points.includes(one)));
  };

  menus.addEventListener("input", draw);
  menus.addEventListener("submit", (event) => event.preventDefault());
  const key = made("p", { className: "legend" }, "● on the Pareto front   ○ beaten   lines: 95 % intervals   larger: chosen more often");
  place.replaceChildren(menus, held, key, picked);
  draw();
  let width = innerWidth;
  addEventListener("resize", () => {
    if (innerWidth !== width) draw();
    width = innerWidth;
  });
};

// --- the plot itself
const plotted = (points, x, y, split, width) => {
  const at = (axis, end) => (point) => {
    const ends = point.values[axis.name];
    return (axis.unit ? 100 : 1) * (ends[end] ?? ends[0]);
  };
  const better = (axis) => (width < NARROW ? "" : ` (${axis.better === "up" ? "higher" : "lower"} is better)`);
  const titled = (axis) => `${axis.title}${axis.unit ? ", %" : ""}${better(axis)}`;
  const facet = (point) => point.factors[split] ?? "";
  const fx = split ? facet : undefined;
  const n = new Set(points.map(facet)).size;
  const room = Math.floor(width / n / LETTER);
  const short = (text) => (text.length > room ? `${text.slice(0, room - 1)}…` : text);
  const line = { stroke: (point) => (point.isFront ? "front" : "beaten"), strokeOpacity: (point) => (point.isFront ? 0.6 : 0.3), fx };
  return Plot.plot({
    className: "plot",
    width,
    height: TALL,
    marginTop: split ? 46 : 30, // the title of the axis is above those of the parts
    marginLeft: 48,
    marginRight: 24,
    marginBottom: 42,
    style: { color: "inherit", background: "none", fontSize: "12px", overflow: "visible" },
    x: { label: titled(x), labelArrow: "none", nice: true, grid: true, ticks: split ? Math.max(2, Math.min(4, Math.floor(width / n / TICK))) : undefined },
    y: { label: titled(y), labelArrow: "none", nice: true, grid: true },
    fx: split ? { label: null, tickFormat: short } : undefined,
    color: { type: "ordinal", domain: ["front", "beaten"], range: ["var(--accent)", "var(--soft)"] },
    r: { type: "identity" },
    opacity: { type: "identity" },
    marks: [
      Plot.frame({ stroke: "var(--line)" }),
      Plot.link(points, { x1: at(x, 1), x2: at(x, 2), y: at(y, 0), ...line }),
      Plot.link(points, { x: at(x, 0), y1: at(y, 1), y2: at(y, 2), ...line }),
      Plot.dot(points, {
        x: at(x, 0),
        y: at(y, 0),
        fx,
        r: (point) => 4 + 5 * Math.sqrt(point.chosen),
        stroke: (point) => (point.isFront ? "front" : "beaten"),
        fill: (point) => (point.isFront ? "var(--accent)" : "var(--paper)"),
        sort: null,
        strokeWidth: 1.5,
      }),
    ],
  });
};

// Every dot says all its numbers: axes, frame and lines need not be read out beside them.
const hush = (svg) => {
  for (const part of svg.querySelectorAll("[aria-label]")) {
    if (part.getAttribute("aria-label") === "dot") part.setAttribute("role", "group");
    else {
      part.removeAttribute("aria-label");
      part.setAttribute("aria-hidden", "true");
    }
  }
};

// The library keeps the number of its point with every dot.
const dots = (root) =>
  [...root.querySelectorAll('[aria-label="dot"] circle')].map((dot) => [dot.__data__, dot]);

const boxed = (svg, element) => {
  const [outer, own] = [svg.getBoundingClientRect(), element.getBoundingClientRect()];
  return { x: own.x - outer.x, y: own.y - outer.y, w: own.width, h: own.height };
};

// "label_format=letter,mood=indicative" is cut before it says anything: its levels are enough,
// unless they are numbers: "0" does not say of what.
const levels = (point) => {
  if (point.isBase) return point.name;
  const at = point.name.lastIndexOf(" · ") + 1;
  return point.name.slice(0, at) + point.name.slice(at).replace(/[\w]+=(?![-.\d])/g, "").replaceAll(",", ", ");
};

// --- names of the choice, the front and the base, then of dots with most others under them,
// --- where one fits without touching another
const name = (svg, points) => {
  const all = dots(svg).map(([at, dot]) => ({ point: points[at], box: boxed(svg, dot) }));
  const under = ({ point, box }) => all.filter((other) => other.point !== point && near(other.box, box)).length;
  const weight = ({ point }) => 4 * point.isChosen + 2 * point.isFront + point.isBase;
  const ranked = all.map((one) => ({ ...one, hidden: under(one) }));
  const wanted = ranked.filter((one) => weight(one) || one.hidden)
    .sort((a, b) => weight(b) - weight(a) || b.hidden - a.hidden);
  const [taken, halos] = [all.map((one) => one.box), []];
  const wide = svg.getBoundingClientRect().width;
  const parts = [...svg.querySelectorAll("rect")].map((frame) => boxed(svg, frame));
  const partOf = (box) => parts.find((part) => overlap(part, box)) ?? { x: 0, w: wide };
  const named = [];
  let n = 0;
  for (const { point, box, hidden } of wanted) {
    const plain = levels(point);
    const short = plain.length > 44 ? `${plain.slice(0, 43)}…` : plain;
    const text = hidden ? `${short} and ${hidden} more` : short;
    if (named.some((other) => near(other, box))) continue; // one name for what lies in one place
    const label = inSvg("text", { class: "name" }, text);
    svg.append(label);
    const w = label.getComputedTextLength();
    const aside = box.w / 2 + LABEL.gap;
    const [cx, cy] = [box.x + box.w / 2, box.y + box.h / 2];
    const spots = [
      [cx + aside, cy - 7, "start"], [cx - aside - w, cy - 7, "end"],
      [cx - w / 2, box.y - LABEL.height - 2, "middle"], [cx - w / 2, box.y + box.h + 2, "middle"],
      [cx, box.y - LABEL.height - 2, "start"], [cx, box.y + box.h + 2, "start"],
    ];
    const haloed = (x, y) => ({
      x: x - LABEL.halo, y: y - LABEL.halo, w: w + 2 * LABEL.halo, h: LABEL.height + 2 * LABEL.halo,
    });
    const fits = ([x, y]) => {
      const own = { x, y, w, h: LABEL.height };
      const isFree = !taken.some((other) => overlap(own, other));
      const isApart = !halos.some((other) => overlap(haloed(x, y), other));
      const part = partOf(box); // a name in the next part would name a dot there
      const isInside = parts.length < 2 || (x >= part.x && x + w <= part.x + part.w);
      return x >= 40 && x + w <= wide && y >= 0 && isInside && isFree && isApart;
    };
    const spot = spots.find(fits);
    if (!spot) {
      label.remove();
      continue;
    }
    const [x, y, anchor] = spot;
    halos.push(haloed(x, y));
    named.push(box);
    label.setAttribute("x", { start: x, middle: x + w / 2, end: x + w }[anchor]);
    label.setAttribute("y", y + 11);
    label.setAttribute("text-anchor", anchor);
    n += 1;
    if (n >= MOST_NAMES) break;
  }
};

// --- the keyboard: one stop for the whole plot, arrows from dot to dot, Enter picks
const walk = (svg, points, told, toggle) => {
  const order = dots(svg).sort(([, a], [, b]) => boxed(svg, a).x - boxed(svg, b).x);
  order.forEach(([at, dot], step) => {
    const point = points[at];
    const front = point.isFront ? "on the Pareto front" : "dominated";
    dot.setAttribute("tabindex", step ? "-1" : "0");
    dot.setAttribute("role", "button");
    dot.setAttribute("aria-label", `${point.name}, ${front}: ${told(point).join(", ")}`);
    dot.append(inSvg("title", {}, `${point.name}\n${told(point).join("\n")}`));
    dot.addEventListener("keydown", (event) => {
      const move = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (move) order[(step + move + order.length) % order.length][1].focus();
      else if (event.key === "Enter" || event.key === " ") toggle(at);
      else return;
      event.preventDefault();
    });
    dot.addEventListener("focus", () => {
      for (const [, other] of order) other.setAttribute("tabindex", "-1");
      dot.setAttribute("tabindex", "0");
    });
  });
};

// --- the brush: what lies in the rectangle that is drawn, or the dot that is clicked
const brush = (svg, picked) => {
  let start;
  const area = inSvg("rect", { class: "brush" });
  const where = (event) => {
    const outer = svg.getBoundingClientRect();
    return [event.clientX - outer.x, event.clientY - outer.y];
  };
  const between = (event) => {
    const [x, y] = where(event);
    return { x: Math.min(x, start[0]) - 1, y: Math.min(y, start[1]) - 1, w: Math.abs(x - start[0]) + 2, h: Math.abs(y - start[1]) + 2 };
  };
  svg.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    start = where(event);
    svg.append(area);
    svg.setPointerCapture(event.pointerId);
    event.preventDefault();
  });
  svg.addEventListener("pointermove", (event) => {
    if (!start) return;
    const { x, y, w, h } = between(event);
    for (const [key, value] of Object.entries({ x, y, width: w, height: h })) area.setAttribute(key, value);
  });
  svg.addEventListener("pointerup", (event) => {
    if (!start) return;
    const box = between(event);
    picked(dots(svg).filter(([, dot]) => overlap(box, boxed(svg, dot))).map(([at]) => at));
    stop();
  });
  const stop = () => {
    start = undefined;
    area.remove();
  };
  svg.addEventListener("pointercancel", stop);
};

for (const figure of document.querySelectorAll("figure.configurations")) enliven(figure);

}
