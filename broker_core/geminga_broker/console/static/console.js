// Plots, fresh numbers, and keys. Every page also works without it.
"use strict";

const EVERY_MS = 2000;
const PAGE_EVERY_MS = 5000;
const POINTS_MAX = 150;
const SVG = "http://www.w3.org/2000/svg";

function short(value) {
  if (value >= 1e6) return (value / 1e6).toFixed(1) + " M";
  if (value >= 1e4) return (value / 1e3).toFixed(1) + " k";
  return value >= 100 || Number.isInteger(value) ? value.toFixed(0) : value.toFixed(1);
}

function element(name, attributes) {
  const made = document.createElementNS(SVG, name);
  for (const key of Object.keys(attributes)) made.setAttribute(key, attributes[key]);
  return made;
}

class Plot {
  constructor(figure) {
    this.figure = figure;
    this.path = figure.dataset.plot;
    this.names = figure.dataset.series.split(",");
    this.points = [];
    this.svg = element("svg", { viewBox: "0 0 100 40", preserveAspectRatio: "none", role: "img" });
    this.svg.append(element("line", { x1: 0, y1: 40, x2: 100, y2: 40 }));
    this.lines = this.names.map((_, index) => element("path", { class: "s" + index }));
    this.svg.append(...this.lines);
    this.labels = this.names.map((_, index) => {
      const label = document.createElement("b");
      label.className = "s" + index;
      return label;
    });
    figure.querySelector("figcaption").append(...this.labels);
  }

  add(values) {
    const numbers = this.names.map((name) => Number(values[name]) || 0);
    this.points.push(numbers);
    if (this.points.length > POINTS_MAX) this.points.shift();
    const empty = this.figure.querySelector("[data-empty]");
    if (empty) empty.replaceWith(this.svg);
    const most = Math.max(1, ...this.points.flat());
    const step = 100 / Math.max(1, this.points.length - 1);
    this.lines.forEach((line, index) => {
      const at = this.points.map((each, x) => `${(x * step).toFixed(2)} ${(39 - 38 * each[index] / most).toFixed(2)}`);
      line.setAttribute("d", "M" + at.join("L"));
    });
    this.labels.forEach((label, index) => {
      label.textContent = (this.names.length > 1 ? this.names[index] + " " : "") + short(numbers[index]);
    });
    this.svg.setAttribute("aria-label", this.names.map((name, i) => `${name} ${short(numbers[i])}`).join(", "));
  }
}

async function look(plots) {
  const paths = new Set(plots.map((plot) => plot.path));
  for (const path of paths) {
    try {
      const answer = await fetch(path, { headers: { accept: "application/json" }, redirect: "error" });
      if (!answer.ok) continue;
      const values = await answer.json();
      plots.filter((plot) => plot.path === path).forEach((plot) => plot.add(values));
    } catch (error) {
      // The broker is away, or the login has ended: the next turn asks again.
    }
  }
}

async function refresh() {
  const parts = [...document.querySelectorAll("[data-refresh]")];
  try {
    const answer = await fetch(location.href, { redirect: "error" });
    if (!answer.ok) return;
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    for (const part of parts) {
      const fresh = page.getElementById(part.id);
      const held = part.contains(document.activeElement) && part !== document.activeElement;
      if (fresh && !held && !part.contains(getSelection().anchorNode)) {
        part.replaceChildren(...fresh.childNodes);
      }
    }
  } catch (error) {
    // As above.
  }
}

function every(milliseconds, turn) {
  const next = async () => {
    if (!document.hidden) await turn();
    setTimeout(next, milliseconds);
  };
  return next;
}

document.addEventListener("keydown", (event) => {
  const typing = /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName);
  if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) {
    const search = document.querySelector("[data-search]");
    if (search) {
      event.preventDefault();
      search.focus();
    }
  }
});

const plots = [...document.querySelectorAll("[data-plot]")].map((figure) => new Plot(figure));
if (plots.length) every(EVERY_MS, () => look(plots))();
if (document.querySelector("[data-refresh]")) setTimeout(every(PAGE_EVERY_MS, refresh), PAGE_EVERY_MS);
