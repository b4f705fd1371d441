// The live page of one run. Rows come as server-sent events; their ids are positions, so a row that
// was seen is dropped and a gap is asked for again. Text is only ever set as text.
"use strict";

const ROWS_MAX = 5000;
const RETRY_MS = 1000;
const base = location.pathname.replace(/\/$/, "");
const byId = (name) => document.getElementById(name);
let last = -1;
let hidden = 0;
let source = null;

function cell(row, text) {
  row.insertCell().textContent = text;
}

// A decision names the row by position and hash, so that it cannot be about another one.
async function decide(step, decision, note) {
  const answer = await fetch(`${base}/approvals`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ journal_index: step.journal_index, event_hash: step.event_hash, decision }),
  });
  const found = await answer.json();
  const kept = found.is_waiting ? "waiting for the signer" : `in the audit log as ${found.hmac}`;
  note.textContent = answer.ok ? ` ${decision}: ${kept}` : ` ${found.error}: ${found.detail}`;
}

function decisionButtons(step) {
  const place = document.createElement("p");
  const note = document.createElement("span");
  for (const decision of ["approve", "reject"]) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = decision;
    button.addEventListener("click", () => decide(step, decision, note));
    place.append(button, " ");
  }
  place.append(note);
  return place;
}

function payloadCell(row, payload, step) {
  const details = document.createElement("details");
  const summary = document.createElement("summary");
  const full = document.createElement("pre");
  summary.textContent = JSON.stringify(payload).slice(0, 160);
  full.textContent = JSON.stringify(payload, null, 2) + "\nevent_hash " + step.event_hash;
  details.append(summary, full, decisionButtons(step));
  row.insertCell().append(details);
}

function matches(row) {
  return row.textContent.toLowerCase().includes(byId("search").value.toLowerCase());
}

function show(step) {
  const rows = byId("rows");
  const row = rows.insertRow();
  const payload = step.payload || {};
  row.dataset.index = step.journal_index;
  cell(row, step.journal_index);
  cell(row, step.journal_event);
  cell(row, payload.agent_id || payload.role || "");
  cell(row, payload.task_id || (payload.task_ids || []).join(", "));
  payloadCell(row, payload, step);
  row.hidden = !matches(row);
  if (rows.rows.length > ROWS_MAX) {
    rows.deleteRow(0);
    hidden += 1;
    byId("older").hidden = false;
    byId("older").textContent = `${hidden} older rows are not shown; see bernstein replay`;
  }
  if (byId("stick").checked) row.scrollIntoView({ block: "end" });
}

// What JSON cannot say (NaN) the thread says all the same; such a row is shown as its text.
function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return { payload: { text } };
  }
}

function state(text) {
  byId("state").textContent = text;
}

function connect() {
  source = new EventSource(last < 0 ? `${base}/thread` : `${base}/thread?after=${last}`);
  source.addEventListener("thread.step", (event) => {
    const index = Number(event.lastEventId);
    if (index <= last) return;
    if (index > last + 1) return again(`rows ${last + 1} to ${index - 1} did not come`);
    last = index;
    show({ ...parsed(event.data), journal_index: index });
  });
  source.addEventListener("place", (event) => {
    const place = JSON.parse(event.data);
    state(`${place.next_index} rows, ${place.is_sealed ? "sealed" : "live"}`);
  });
  source.addEventListener("end", () => {
    source.close();
    verdict();
  });
  source.addEventListener("refused", (event) => {
    source.close();
    judged("bad", "refused", JSON.parse(event.data).detail);
  });
  source.onerror = () => {
    // The browser comes again by itself unless it was told not to.
    if (source.readyState === EventSource.CLOSED) again("the connection was refused or lost");
  };
}

function again(why) {
  source.close();
  state(`${why}; asking again`);
  setTimeout(connect, RETRY_MS);
}

function judged(kind, word, about) {
  byId("verdict").className = kind;
  byId("word").textContent = word;
  byId("about").textContent = about;
}

async function verdict() {
  const answer = await fetch(`${base}/verdict`);
  const found = await answer.json();
  if (!answer.ok) return judged("bad", found.error, found.detail);
  const about = `${found.row_count} rows, coverage ${found.coverage}, identity ${found.identity}`;
  judged(found.is_clean ? "good" : "bad", found.is_clean ? "chain intact" : "not clean", about);
  for (const index of found.findings.map((each) => each.index).concat(found.divergent_index)) {
    document.querySelector(`tr[data-index="${index}"]`)?.classList.add("wrong");
  }
}

function theme(name) {
  document.documentElement.dataset.theme = name;
  localStorage.setItem("theme", name);
}

byId("run").textContent = document.title = decodeURIComponent(base.split("/").pop());
byId("search").addEventListener("input", () => {
  for (const row of byId("rows").rows) row.hidden = !matches(row);
});
byId("theme").addEventListener("click", () => {
  theme(document.documentElement.dataset.theme === "night" ? "day" : "night");
});
theme(localStorage.getItem("theme") || (matchMedia("(prefers-color-scheme: dark)").matches ? "night" : "day"));
verdict();
connect();
