// Keeps an open page up to date. Without this script the pages work as well, but stand still.
"use strict";

const connection = document.getElementById("connection");
let stream = null;
let retry = 0;

function showConnection(state, text, details = "") {
  connection.dataset.state = state;
  connection.title = details;
  connection.querySelector(".text").textContent = text;
}

// -- ages ---------------------------------------------------------------------------------------

// The units of an age, in seconds, largest first.
const UNITS = [[86400, "d"], [3600, "h"], [60, "m"], [1, "s"]];

function age(seconds) {
  const future = seconds < 0;
  let rest = Math.abs(Math.round(seconds));
  const parts = [];
  for (const [size, unit] of UNITS) {
    if (rest >= size && parts.length < 2) {
      parts.push(Math.floor(rest / size) + unit);
      rest %= size;
    } else if (parts.length) {
      break;
    }
  }
  const text = parts.join(" ") || "0s";
  return future ? "in " + text : text + " ago";
}

function showAges() {
  for (const time of document.querySelectorAll("time.ago")) {
    const at = new Date(time.dateTime);
    const text = age((Date.now() - at) / 1000);
    if (time.textContent !== text) time.textContent = text;
    if (!time.title) time.title = at.toLocaleString();
  }
}

// -- live updates -------------------------------------------------------------------------------

// Whether an attribute of an element is the reader's: what is opened, where the tab key stops in a
// grid, and what is typed or chosen in a form that is sent by its button.
function isReaders(name, node) {
  if (name === "open") return node.localName === "details";
  if (name === "tabindex") return node.closest("[data-cells]") !== null;
  const form = node.closest("form");
  return form !== null && !("live" in form.dataset) && ["value", "checked", "selected"].includes(name);
}

// What the reader has opened, typed or focused stays as it is.
const KEEP = {
  morphStyle: "innerHTML",
  ignoreActiveValue: true,
  callbacks: {
    beforeAttributeUpdated: (name, node) => !isReaders(name, node),
    // Scripts fill these parts, and renew them themselves.
    beforeNodeMorphed: (node) => !(node.dataset && "own" in node.dataset),
  },
};

function show(html) {
  const next = document.createElement("div");
  next.innerHTML = html;
  for (const time of next.querySelectorAll("time.ago")) {
    time.textContent = age((Date.now() - new Date(time.dateTime)) / 1000);
  }
  Idiomorph.morph(document.getElementById("main"), [...next.childNodes], KEEP);
  document.dispatchEvent(new Event("iris:shown"));
}

function connect() {
  disconnect();
  if (document.hidden) return;
  // A question or a problem does not change.
  if (!("started" in document.body.dataset)) return;
  stream = new EventSource(location.pathname + location.search);
  stream.addEventListener("started", (event) => {
    if (event.data !== document.body.dataset.started) location.reload();
    else showConnection("live", "live");
  });
  stream.addEventListener("main", (event) => {
    show(event.data);
    showConnection("live", "live");
  });
  // The cluster does not answer: the page stays. An empty problem has ended.
  stream.addEventListener("problem", (event) => {
    const problem = event.data;
    if (!problem) showConnection("live", "live");
    else showConnection("stale", "not up to date: " + problem.split(/[:;] /)[0], problem);
  });
  stream.onerror = () => {
    showConnection("lost", "connection lost, trying again");
    // A browser gives up when a proxy answers with an error; a restart takes some seconds.
    if (stream && stream.readyState === EventSource.CLOSED) retry = setTimeout(connect, 2000);
  };
}

function disconnect() {
  clearTimeout(retry);
  if (stream) stream.close();
  stream = null;
}

// Browsers open at most six connections to one server, so only visible pages are live.
document.addEventListener("visibilitychange", () => {
  if (document.hidden) disconnect();
  else connect();
});
addEventListener("pagehide", disconnect);
addEventListener("pageshow", (event) => { if (event.persisted) connect(); });

// -- filters ------------------------------------------------------------------------------------

let typing = 0;

async function filter(form) {
  const query = new URLSearchParams();
  for (const [name, value] of new FormData(form)) if (value) query.set(name, value);
  history.replaceState(null, "", form.getAttribute("action") + (query.size ? "?" + query : ""));
  connect();
}

document.addEventListener("input", (event) => {
  const form = event.target.form;
  if (!form || !("live" in form.dataset)) return;
  clearTimeout(typing);
  typing = setTimeout(filter, 300, form);
});

showAges();
setInterval(showAges, 1000);
if (!document.hidden) connect();

// -- grids ---------------------------------------------------------------------------------------

// The arrow keys move through the cells of a grid, of which only one is a stop of the tab key.
function cellsOf(grid) {
  return [...grid.querySelectorAll("a")];
}

// Returns the cell of the next row, below or above, that is nearest to this one.
function inNextRow(cells, cell, down) {
  const from = cell.getBoundingClientRect();
  let found = null;
  for (const each of cells) {
    const at = each.getBoundingClientRect();
    const row = down ? at.top - from.bottom : from.top - at.bottom;
    if (row < -1) continue;
    const aside = Math.abs(at.left - from.left);
    if (!found || row < found.row - 4 || (row < found.row + 4 && aside < found.aside)) {
      found = { each, row, aside };
    }
  }
  return found && found.each;
}

function nextCell(cells, cell, key) {
  const at = cells.indexOf(cell);
  switch (key) {
    case "ArrowLeft": return cells[at - 1];
    case "ArrowRight": return cells[at + 1];
    case "ArrowUp": return inNextRow(cells, cell, false);
    case "ArrowDown": return inNextRow(cells, cell, true);
    case "Home": return cells[0];
    case "End": return cells[cells.length - 1];
  }
  return null;
}

document.addEventListener("keydown", (event) => {
  const cell = event.target;
  const grid = cell.closest && cell.closest("[data-cells]");
  if (!grid || event.altKey || event.ctrlKey || event.metaKey) return;
  const next = nextCell(cellsOf(grid), cell, event.key);
  if (!next) return;
  event.preventDefault();
  cell.tabIndex = -1;
  next.tabIndex = 0;
  next.focus();
});

// A grid whose stop has gone with an update gets another one.
document.addEventListener("iris:shown", () => {
  for (const grid of document.querySelectorAll("[data-cells]")) {
    const cells = cellsOf(grid);
    const stops = cells.filter((each) => each.tabIndex === 0);
    if (!stops.length && cells.length) cells[0].tabIndex = 0;
    for (const each of stops.slice(1)) if (each !== document.activeElement) each.tabIndex = -1;
  }
});
