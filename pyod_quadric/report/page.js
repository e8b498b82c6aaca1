"use strict";
document.documentElement.className = "js";
const data = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);
const array = (text, type) => new type(Uint8Array.from(atob(text), (sign) => sign.charCodeAt(0)).buffer);
const short = (number) => (number < 1e6 ? Number(number.toPrecision(5)).toString() : number.toExponential(3));
// Plotly reads some HTML in texts, so that all text is escaped for it.
const escaped = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
const axis = { gridcolor: "#dddddd", linecolor: "#767676", zeroline: false, automargin: true };
const isTouched = matchMedia("(pointer: coarse)").matches; // where a drag is to move the page
const drawPlot = (id, traces, layout) => Plotly.react(id, traces, {
  font: { family: "system-ui, sans-serif", size: 13, color: "#1b1b1b" }, margin: { l: 50, r: 15, t: 30, b: 45 },
  legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0 }, hovermode: "closest",
  dragmode: isTouched ? false : "zoom", ...layout,
  xaxis: { ...axis, ...layout.xaxis }, yaxis: { ...axis, ...layout.yaxis },
}, { responsive: true, displaylogo: false, showSendToCloud: false, plotlyServerURL: "" }); // nothing is to leave the page
for (const [id, { traces, layout }] of Object.entries(data.plots)) drawPlot(id, traces, layout);

const { ids, threshold, axes } = data.rows;
const rows = array(data.rows.row, Float64Array), scores = array(data.rows.score, Float64Array);
const pValues = array(data.rows.p_value, Float32Array);
const xs = array(data.rows.x, Float32Array), ys = array(data.rows.y, Float32Array);
const texts = Array.from(rows, (row, i) => `${row}${ids ? `\n${ids[i]}` : ""}`.toLowerCase());
const isAbove = (i) => scores[i] > threshold;
const levels = scores.map((score) => Math.log10(Math.max(score, data.rows.least)));
const glyphs = document.createElement("canvas").getContext("webgl") ? "scattergl" : "scatter";
const MOST = 200; // lines of the table
const colorbar = { ...data.rows.coloraxis.colorbar, orientation: "h", y: -0.18, yanchor: "top", thickness: 12,
  title: { text: "outlier score", side: "bottom" } };
let marked = null, turn = 0; // the chosen row, and how often the rows were filtered
byId("edge").textContent = data.rows.edge;

function hover(i) {
  const id = ids ? `<br>${escaped(ids[i].slice(0, 80))}` : "";
  return `row ${rows[i]}${id}<br>score ${short(scores[i])}<br>p-value ${short(pValues[i])}`;
}

function cloud(shown, marker) {
  const of = (column) => Array.from(shown, (i) => column[i]);
  return {
    type: glyphs, mode: "markers", x: of(xs), y: of(ys), customdata: shown, text: shown.map(hover), hoverinfo: "text",
    marker: { color: of(levels), coloraxis: "coloraxis", ...marker },
  };
}

function drawMap(shown) {
  const above = shown.filter(isAbove), below = shown.filter((i) => !isAbove(i));
  const small = { size: below.length > 5000 ? 4 : 6 };
  const large = { size: above.length > 500 ? 6 : 9, symbol: "diamond", line: { color: "#1b1b1b", width: 1 } };
  const ring = { type: glyphs, mode: "markers", x: [], y: [], hoverinfo: "skip",
    marker: { size: 22, symbol: "circle-open", color: "#d55e00", line: { width: 3 } } };
  if (marked !== null) { ring.x.push(xs[marked]); ring.y.push(ys[marked]); }
  return drawPlot("map", [cloud(below, small), cloud(above, large), ring], {
    xaxis: { title: { text: axes[0] }, range: data.rows.ranges[0] }, yaxis: { title: { text: axes[1] }, range: data.rows.ranges[1] },
    showlegend: false, uirevision: "as it was", selections: [], selectionrevision: turn,
    plot_bgcolor: "#f2f2f2", coloraxis: { ...data.rows.coloraxis, colorbar },
  });
}

function drawTable(shown) {
  const table = document.createElement("table"), head = table.createTHead().insertRow(), body = table.createTBody();
  for (const name of ["row", "score", "p-value", "outlier", ...(ids ? [data.rows.id_name] : [])]) {
    const cell = head.appendChild(document.createElement("th"));
    cell.scope = "col";
    cell.textContent = name;
  }
  for (const i of shown.slice(-MOST).reverse()) {
    const line = body.insertRow(), button = document.createElement("button");
    button.textContent = rows[i];
    button.title = "show on the map";
    button.onclick = () => { marked = i; drawMap(current); };
    line.insertCell().append(button);
    for (const text of [short(scores[i]), short(pValues[i]), isAbove(i) ? "yes" : "no", ...(ids ? [ids[i]] : [])]) {
      line.insertCell().textContent = text;
    }
  }
  byId("rows").replaceChildren(table);
  const listed = shown.length > MOST ? `; the table lists the ${MOST} with the highest scores` : "";
  byId("count").textContent = `${shown.length.toLocaleString("en")} of ${rows.length.toLocaleString("en")} rows${listed}.`;
}

let current = Array.from(rows.keys());
function filter() {
  const form = byId("filter").elements, wanted = form.text.value.trim().toLowerCase();
  const low = form.low.value === "" ? -Infinity : Number(form.low.value);
  const high = form.high.value === "" ? Infinity : Number(form.high.value);
  current = Array.from(rows.keys()).filter((i) => scores[i] >= low && scores[i] <= high
    && (!form.above.checked || isAbove(i)) && (!wanted || texts[i].includes(wanted)));
  marked = current.includes(marked) ? marked : null;
  turn += 1;
  drawTable(current);
  return drawMap(current);
}

let timer;
const later = () => { clearTimeout(timer); timer = setTimeout(filter, 150); };
byId("filter").addEventListener("input", later);
byId("filter").addEventListener("reset", later);
byId("filter").addEventListener("submit", (event) => event.preventDefault());
filter().then((map) => {
  map.on("plotly_selected", (event) => {
    const inside = (event?.points ?? []).map((point) => point.customdata);
    drawTable(inside.length ? inside.sort((a, b) => a - b) : current);
  });
  map.on("plotly_deselect", () => drawTable(current));
  document.documentElement.dataset.ready = "yes";
});
