// The form: what is sent to the server, and what the page says of its answers.

import { drawAnswer, summaryOfAnswer } from "./asking.js";
import { counted, draw, summary } from "./ranking.js";

const PAUSE = 150; // milliseconds without a move of the slider before the page ranks again
const SENTENCES = 10; // of a collection that the page shows
const HINT = document.getElementById("ratio-hint").textContent;
const SLOW = 300; // milliseconds before the page says that it waits

const find = (id) => document.getElementById(id);
const ratio = find("ratio");

let ranker = {}; // answer of /api/ranker, empty before it comes
let ownRatio = false; // whether the slider was moved; before that the server's drops stand
let ranked = false;
let current = null; // AbortController of the request whose answer counts
let timer = 0;

/** An answer of the server that is no ranking. */
class Refusal extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

async function request(path, options = {}) {
  const headers = { Accept: "application/json" };
  if (options.body) headers["Content-Type"] = "application/json";
  if (find("key").value) headers.Authorization = `Bearer ${find("key").value}`;
  const [response, text] = await fetched(path, { ...options, headers });
  const body = parsed(text);
  if (!response.ok) throw new Refusal(response.status, problemOf(response, body));
  if (body === null) throw new Refusal(response.status, "The server's answer is no JSON.");
  return body;
}

async function fetched(path, options) {
  try {
    const response = await fetch(path, options);
    return [response, await response.text()];
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refusal(0, "The server does not answer. Is it still running?");
  }
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

/** The message of an error, wherever the server's dialect has it. */
function problemOf(response, body) {
  const places = body ? [body.message, body.error && body.error.message, body.error, body.detail] : [];
  const message = places.find((place) => typeof place === "string" && place);
  const again = response.headers.get("Retry-After");
  const wait = again ? ` Try again in ${again} s.` : "";
  return `${message || `The server answers ${response.status} ${response.statusText}`.trim()}.`.replace(/\.\.$/, ".") + wait;
}

function candidates() {
  return find("candidates").value.split("\n").filter((line) => line.trim());
}

/** Show what is wrong with a field, or take it away. */
function mark(field, problem) {
  const note = find(`${field}-problem`);
  note.textContent = problem;
  note.hidden = !problem;
  if (problem) find(field).setAttribute("aria-invalid", "true");
  else find(field).removeAttribute("aria-invalid");
}

/** Check the two texts; the first field that is empty gets the focus, if it is wanted. */
function areFilled(focus) {
  const problems = {
    question: find("question").value.trim() ? "" : "Type a question.",
    candidates: asks() || candidates().length ? "" : "Type candidates, one a line.",
  };
  for (const [field, problem] of Object.entries(problems)) mark(field, problem);
  const wrong = Object.keys(problems).filter((field) => problems[field]);
  if (wrong.length && focus) find(wrong[0]).focus();
  return !wrong.length;
}

/** Whether the candidates are the sentences of the server's collection. */
function asks() {
  return find("collection").checked;
}

/** Name of the ranker that is chosen, empty where there is one alone. */
function chosen() {
  return find("model").value;
}

function body() {
  const sent = { question: find("question").value.trim() };
  if (chosen()) sent.model = chosen();
  if (ownRatio) sent.drop_ratio = Number(ratio.value);
  if (asks()) return JSON.stringify({ ...sent, n_best: SENTENCES });
  sent.candidates = candidates();
  if (find("compare").checked) sent.compare = true;
  return JSON.stringify(sent);
}

/** Let the address of the page lead to this view again. */
function share() {
  const state = asks() ? new URLSearchParams({ question: find("question").value.trim() }) : "";
  if (state && ownRatio) state.set("drop_ratio", ratio.value);
  if (state && chosen()) state.set("model", chosen());
  history.replaceState(null, "", `#${state}`);
}

/** Fit the form to where the candidates come from. */
function chooseSource() {
  find("candidates-field").hidden = asks();
  find("compare").disabled = asks() || ranker.stages === 1;
}

/** Rank what stands in the form. A later call takes the place of this one. */
async function rank(focus) {
  clearTimeout(timer);
  if (current) current.abort();
  if (!areFilled(focus)) {
    current = null;
    clear();
    return;
  }
  const mine = new AbortController();
  current = mine;
  find("results").setAttribute("aria-busy", "true");
  const waiting = setTimeout(() => say("Ranking\u2026"), SLOW);
  try {
    const asked = asks();
    const answer = await request(asked ? "ask" : "api/rank", { method: "POST", body: body(), signal: mine.signal });
    if (!ranker.system) await describe(); // it was not there yet, or asked for the key
    if (mine !== current) return;
    show(answer, asked);
  } catch (error) {
    if (!(error instanceof Refusal) && error.name !== "AbortError") throw error;
    if (mine === current) refuse(error);
  } finally {
    clearTimeout(waiting);
    if (mine === current) find("results").removeAttribute("aria-busy");
  }
}

function say(text) {
  find("status").textContent = text;
}

function show(answer, asked) {
  ranked = true;
  find("error").textContent = "";
  (asked ? drawAnswer : draw)(find("ranking"), answer, ranker);
  find("ranking").hidden = false;
  say(asked ? summaryOfAnswer(answer) : summary(answer));
  share();
}

/** Show no ranking, as there is none of what stands in the form. */
function clear(problem = "") {
  find("error").textContent = problem;
  find("ranking").hidden = true;
  find("results").removeAttribute("aria-busy");
  say("No ranking.");
}

function refuse(error) {
  const wrong = find("key").value ? "This is not the API key of the server." : "This server asks for its API key.";
  clear(error.status === 401 ? wrong : error.message);
  if (error.status === 401) {
    find("key-field").hidden = false;
    find("key").focus();
  }
}

/** Ask the server what it ranks with, and fit the form to it. */
async function describe() {
  try {
    const query = chosen() ? `?${new URLSearchParams({ model: chosen() })}` : "";
    ranker = await request(`api/ranker${query}`);
  } catch (error) {
    if (error.status === 401) find("key-field").hidden = false;
    return; // ranking says what is wrong
  }
  const parts = [ranker.model, ranker.system].filter((name, index, names) => names.indexOf(name) === index);
  if (ranker.num_layers) parts.push(`${counted(ranker.num_layers, "layer")}, exits after ${ranker.exits.join(", ")}`);
  find("ranker").textContent = parts.join(" \u00b7 ");
  offerModels();
  if (ranker.documents && find("sources").hidden) {
    find("documents").textContent = counted(ranker.documents, "document");
    find("sources").hidden = false;
    find("collection").checked = true;
    chooseSource();
  }
  const isWhole = ranker.stages === 1;
  ratio.disabled = isWhole;
  find("compare").disabled = isWhole || asks();
  find("ratio-hint").textContent = isWhole ? "This ranker has one stage, so that it drops nothing." : HINT;
  if (!isWhole && !ownRatio) showServerRatio();
}

/** Let the reader choose between the rankers of the server, where there are several. */
function offerModels() {
  if (ranker.models.length === 1 || !find("model-field").hidden) return;
  find("model").replaceChildren(...ranker.models.map((name) => new Option(name)));
  find("model").value = ranker.model;
  find("model-field").hidden = false;
}

/** Show the drop ratio of the server, where it is one for all exits. */
function showServerRatio() {
  const ratios = ranker.drop_ratios.slice(0, -1);
  const alike = ratios.every((value) => value === ratios[0]) && ranker.keep.every((count) => !count);
  if (alike) ratio.value = ratios[0];
  writeRatio(alike ? ratios[0].toFixed(2) : "as served");
}

function writeRatio(text) {
  find("ratio-value").textContent = text;
  ratio.setAttribute("aria-valuetext", text);
}

function count() {
  find("count").textContent = `${counted(candidates().length, "candidate")} now.`;
}

find("form").addEventListener("submit", (event) => {
  event.preventDefault();
  rank(true);
});
find("form").addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
  event.preventDefault();
  rank(true);
});
ratio.addEventListener("input", () => {
  ownRatio = true;
  writeRatio(Number(ratio.value).toFixed(2));
  clearTimeout(timer);
  timer = setTimeout(() => rank(false), PAUSE);
});
find("compare").addEventListener("change", () => {
  if (ranked) rank(false);
});
find("model").addEventListener("change", async () => {
  await describe();
  if (ranked) rank(false);
});
find("candidates").addEventListener("input", count);
find("sources").addEventListener("change", chooseSource);
count();

/** Ask again what the address of the page says was asked. */
async function begin() {
  const asked = new URLSearchParams(location.hash.slice(1));
  const given = Number(asked.get("drop_ratio"));
  if (asked.get("question")) find("question").value = asked.get("question");
  if (asked.get("drop_ratio") && given >= 0 && given < 1) {
    ownRatio = true;
    ratio.value = given;
    writeRatio(Number(ratio.value).toFixed(2));
  }
  await describe();
  if (ranker.models && ranker.models.includes(asked.get("model")) && asked.get("model") !== ranker.model) {
    find("model").value = asked.get("model");
    await describe();
  }
  if (asked.get("question") && asks()) rank(false);
}
begin();
