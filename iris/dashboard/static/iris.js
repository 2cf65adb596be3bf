// Keeps an open page up to date. Without this script the pages work as well, but stand still.
"use strict";

const connection = document.getElementById("connection");
let stream = null;
let retry = 0;

function showConnection(state, text) {
  connection.dataset.state = state;
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

// What the reader has opened, typed or focused stays as it is.
const KEEP = {
  morphStyle: "innerHTML",
  ignoreActiveValue: true,
  callbacks: {
    beforeAttributeUpdated: (name, node) => !(node.localName === "details" && name === "open"),
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
  stream.addEventListener("main", (event) => show(event.data));
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

// -- grids of tasks -----------------------------------------------------------------------------

// The arrow keys move through the cells of a grid, of which only one is a stop of the tab key.
document.addEventListener("keydown", (event) => {
  const cell = event.target;
  const grid = cell.parentElement;
  if (!grid || !("cells" in grid.dataset)) return;
  const columns = [...grid.children].filter((each) => each.offsetTop === cell.offsetTop).length;
  const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns }[event.key];
  const next = step && grid.children[[...grid.children].indexOf(cell) + step];
  if (!next) return;
  event.preventDefault();
  cell.tabIndex = -1;
  next.tabIndex = 0;
  next.focus();
});
