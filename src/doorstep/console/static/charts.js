// Charts. A <figure data-chart> contains its values as JSON. When the JSON changes, the chart is drawn again.
//   {"kind": "line"|"area"|"bars", "unit": "/min"|"%"|"s"|"", "at": [seconds, …],
//    "series": [{"name": "delivered", "tone": "good", "values": [1, null, …]}, …]}
import { scale, SPANS, worded } from "./measures.js";
import { local } from "./times.js";

const drawn = new WeakMap();

export function drawCharts() {
  drawAll();
  document.addEventListener("htmx:after:swap", drawAll);
  document.addEventListener("doorstep:theme", redrawAll);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redrawAll);
  new ResizeObserver(resizeAll).observe(document.body);
}

function figures() {
  return [...document.querySelectorAll("figure[data-chart]")];
}

function drawAll() {
  figures().forEach(draw);
}

function redrawAll() {
  figures().forEach((figure) => { drawn.get(figure)?.chart.destroy(); drawn.delete(figure); draw(figure); });
}

function resizeAll() {
  figures().forEach((figure) => drawn.get(figure)?.chart.setSize(size(figure)));
}

function draw(figure) {
  const text = figure.querySelector("script[type='application/json']").textContent;
  const before = drawn.get(figure);
  if (before?.text === text) return;
  const told = JSON.parse(text);
  const data = [told.at, ...told.series.map((one) => one.values)];
  if (before && before.shape === shape(told)) {
    before.chart.setData(data);
    before.text = text;
  } else {
    before?.chart.destroy();
    const place = figure.querySelector("[data-plot]");
    drawn.set(figure, { text, shape: shape(told), chart: new window.uPlot(options(figure, told), data, place) });
  }
  sayLatest(figure, told);
}

// Describes the chart in words, for screen readers.
function sayLatest(figure, told) {
  const at = latest([told.at, ...told.series.map((one) => one.values)]);
  const values = told.series.map((one) => (told.unit === "retries" ? spread(one) : `${one.name} ${worded(one.values[at], told.unit)}`));
  const moment = told.unit === "retries" || at === null ? "" : `, at ${day(told.at[at])}`;
  figure.querySelector("[data-plot]").setAttribute("aria-label", `${told.title}${moment}: ${values.join(", ")}`);
}

function spread(one) {
  return one.values.flatMap((count, retries) => (count ? [`${worded(count, "")} with ${retries} ${retries === 1 ? "retry" : "retries"}`] : [])).join(", ") || "none";
}

// The index of the last values that are not missing.
function latest([at, ...values]) {
  for (let place = at.length - 1; place >= 0; place -= 1) if (values.some((one) => one[place] !== null)) return place;
  return null;
}

function day(seconds) {
  return local(seconds * 1000).slice(0, 16);
}

// The time of day; with the date if the chart covers more than a day.
function brief(seconds, all) {
  return all.at(-1) - all[0] > 86400 ? day(seconds).slice(5) : day(seconds).slice(11);
}

function shape(told) {
  return JSON.stringify([told.kind, told.unit, told.series.map((one) => [one.name, one.tone])]);
}

function size(figure) {
  const place = figure.querySelector("[data-plot]");
  return { width: Math.max(200, place.clientWidth), height: figure.dataset.chart === "large" ? 240 : 170 };
}

function options(figure, told) {
  const quiet = colour("--quiet");
  const axis = { stroke: quiet, grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false }, font: "11px system-ui" };
  return {
    ...size(figure),
    padding: [8, 18, 0, 0],
    cursor: { y: false, points: { size: 5 } },
    legend: { live: true },
    hooks: { setData: [restLegend], ready: [restLegend], setCursor: [restLegend] },
    scales: { x: { time: told.unit !== "retries" }, y: { range: (_, low, high) => scale(told.unit, low, high) } },
    axes: [
      { ...axis, size: 28, ...(told.unit === "retries" ? { incrs: [1], space: 20 } : { values: (_, at, __, ___, step) => at.map((one) => moment(one, step)) }) },
      { ...axis, size: 52, ...(told.unit === "s" ? { incrs: SPANS } : {}), values: (_, ticks) => ticks.map((tick) => worded(tick, told.unit)) },
    ],
    series: [told.unit === "retries" ? { label: "retries" } : { label: "Time", value: (plot, at) => (at === null ? "–" : brief(at, plot.data[0])) }, ...told.series.map((one) => series(one, told))],
  };
}

// The legend shows the latest values, unless the mouse points to others.
function restLegend(plot) {
  if (plot.cursor.left >= 0) return;
  const idx = plot.series[0].label === "retries" ? 0 : latest(plot.data);
  if (idx !== null) plot.setLegend({ idx }, false);
}

function moment(seconds, step) {
  const text = local(seconds * 1000);
  return step >= 86400 ? text.slice(5, 10) : text.slice(11, 16);
}

function series(one, told) {
  const tone = colour(`--${one.tone}`);
  const bars = told.kind === "bars";
  return {
    label: one.name,
    stroke: tone,
    width: bars ? 0 : 1.5,
    fill: bars ? tone : told.kind === "area" ? faded(tone) : undefined,
    paths: bars ? window.uPlot.paths.bars({ size: [0.8, 40] }) : undefined,
    points: { show: false, filter: bars ? undefined : lonely, size: 4, fill: tone },
    spanGaps: false,
    value: (_, value) => worded(value, told.unit),
  };
}

// A line needs two adjacent points, so a single point between gaps is drawn as a dot.
function lonely(plot, place) {
  const values = plot.data[place];
  const missing = (at) => values[at] === null || values[at] === undefined;
  return values.flatMap((_, at) => (!missing(at) && missing(at - 1) && missing(at + 1) ? [at] : []));
}

function colour(name) {
  const probe = document.createElement("span");
  probe.className = `probe tone-${name.slice(2)}`;
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

function faded(tone) {
  return tone.replace(/^rgb\(/, "rgba(").replace(/\)$/, ", 0.15)");
}
