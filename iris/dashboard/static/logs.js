// Appends new lines of a log to an open page. Without this script the page shows the lines that
// existed when it was loaded.
"use strict";

// The most lines that stay in the page.
const MOST_LOG_LINES = 5000;
const log = { source: null, address: null };

function logAtEnd(box) {
  return box.scrollHeight - box.scrollTop - box.clientHeight < 40;
}

function logState(text) {
  const state = document.getElementById("log-state");
  if (state && state.textContent !== text) state.textContent = text;
}

function appendLines(html, isStart) {
  const box = document.getElementById("log");
  if (!box) return;
  const follows = logAtEnd(box);
  if (isStart) box.replaceChildren();
  for (const old of box.querySelectorAll(":scope > .begun, :scope > .empty")) old.remove();
  box.insertAdjacentHTML("beforeend", html);
  const surplus = box.childElementCount - MOST_LOG_LINES;
  for (let left = surplus; left > 0; left--) box.firstElementChild.remove();
  if (follows || isStart) box.scrollTop = box.scrollHeight;
}

function stopLog() {
  if (log.source) log.source.close();
  log.source = null;
}

// Opens the stream: at the place where the lines of the page end, or at the last lines.
function followLog(position) {
  stopLog();
  if (!log.address) return;
  const address = new URL(log.address, location);
  if (position) address.searchParams.set("position", position);
  const source = log.source = new EventSource(address);
  const keep = (event) => {
    const box = document.getElementById("log");
    if (box) box.dataset.position = event.lastEventId;
  };
  source.addEventListener("start", (event) => { appendLines(event.data, true); keep(event); });
  source.addEventListener("lines", (event) => { appendLines(event.data, false); keep(event); });
  source.addEventListener("problem", (event) => logState(event.data));
  source.addEventListener("end", () => { stopLog(); logState("complete"); });
  source.onopen = () => {
    logState("follows the output");
    // A line without its end stays as it is: the rest of it comes as a line of its own.
    for (const old of document.querySelectorAll("#log > .begun")) old.className = "broken";
  };
  source.onerror = () => {
    logState("connection lost, trying again");
    if (source.readyState === EventSource.CLOSED) setTimeout(resumeLog, 2000);
  };
}

function resumeLog() {
  const box = document.getElementById("log");
  if (box && !document.hidden) followLog(box.dataset.position);
}

// The page was updated: another filter means other lines.
document.addEventListener("iris:shown", () => {
  const part = document.getElementById("log-source");
  const wanted = part ? part.dataset.stream : "";
  if (wanted === log.address) return;
  log.address = wanted;
  const box = document.getElementById("log");
  if (box) box.dataset.position = "";
  followLog("");
});
document.addEventListener("visibilitychange", () => {
  if (document.hidden) stopLog();
  else resumeLog();
});
addEventListener("pagehide", stopLog);

(() => {
  const part = document.getElementById("log-source");
  const box = document.getElementById("log");
  if (!part || !box) return;
  log.address = part.dataset.stream;
  if (log.address) box.scrollTop = box.scrollHeight;
  resumeLog();
})();
