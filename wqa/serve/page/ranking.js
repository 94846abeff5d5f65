// Draws an answer of /api/rank. Texts reach the page as text nodes alone, never as markup.

const DENSE = 24; // candidates, above which the columns show two lines of each
const FELL = "A candidate stands where it was scored last; below it are its scores on the way.";
const SCORES = "The relevance falls along the ranking.";
const SHADED = " The last score of a candidate is shaded, with \u2715 where an exit dropped it.";
const ROLES = { col: "columnheader", row: "rowheader" };
const LOG_ODDS = " Scores are log-odds of being an answer: 0 is as likely as not.";

/** Make an element: attributes by name, classes by `class`, then children, which may be texts. */
export function element(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children.filter((child) => child !== null));
  return node;
}

const unseen = (text) => element("span", { class: "unseen" }, text);
const number = (value, digits = 2) => value.toFixed(digits).replace("-", "\u2212");
export const relevance = ({ relevance: value }) =>
  value > 0 && value < 0.0005 ? "<0.001" : value.toFixed(3);
export const percent = (share) => `${Math.round(100 * share)}\u00a0%`;
export const duration = (seconds) =>
  seconds < 1 ? `${Math.max(1, Math.round(1000 * seconds))}\u00a0ms` : `${seconds.toFixed(2)}\u00a0s`;

export function counted(count, noun) {
  return `${count} ${noun}${count === 1 ? "" : "s"}`;
}

/** The stages of an answer: name, candidates scored, those whose last score is here, cost so far. */
function stagesOf(answer, ranker) {
  const filled = answer.candidates.filter((candidate) => !candidate.blank);
  const lengths = filled.map((candidate) => candidate.exit_scores.length);
  const count = Math.max(1, answer.exits.length, ...lengths);
  const layers = layersOf(answer, ranker, count);
  const stages = [];
  let work = 0;
  for (let index = 0; index < count; index += 1) {
    const reached = filled.filter((candidate) => lastStage(candidate) >= index);
    const scored = filled.filter((candidate) => isScore(candidate.exit_scores[index]));
    work += layers ? layers[index] * scored.length : 0;
    stages.push({
      name: nameOf(answer, ranker, count, index),
      scored: scored.length,
      stopped: reached.filter((candidate) => lastStage(candidate) === index),
      cost: layers && filled.length ? work / (ranker.num_layers * filled.length) : null,
      last: index === count - 1,
    });
  }
  // Where the layers do not make up the cost, as with encodings that were stored, it has no parts.
  const { cost } = stages[count - 1];
  if (Math.abs(cost - answer.cost.relative) > 0.01) stages.forEach((stage) => (stage.cost = null));
  return stages;
}

/** Number of layers that each stage runs, or null where stages are not layers of one encoder. */
function layersOf(answer, ranker, count) {
  const layers = ranker.stage_layers || [];
  return ranker.num_layers && layers.length === count ? layers : null;
}

function nameOf(answer, ranker, count, index) {
  if (ranker.num_layers && answer.exits.length === count) return `Layer ${answer.exits[index]}`;
  return count === 1 ? "All candidates" : `Stage ${index + 1}`;
}

const isScore = (score) => typeof score === "number";

function lastStage(candidate) {
  return candidate.exit_scores.reduce((last, score, index) => (isScore(score) ? index : last), -1);
}

/** One sentence of what happened, which a screen reader hears. */
export function summary(answer) {
  const dropped = answer.candidates.filter((candidate) => candidate.dropped).length;
  const parts = [`${counted(answer.candidates.length, "candidate")} ranked in ${duration(answer.seconds)}`];
  if (dropped) parts.push(`${dropped} dropped on the way`);
  if (answer.cost.relative) parts.push(`${percent(answer.cost.relative)} of the full encoder's work`);
  return `${parts.join(", ")}.${noAnswer(answer)}${comparison(answer)}`;
}

/** What a calibrated ranker says where no candidate answers the question. */
function noAnswer(answer) {
  if (answer.answered !== false) return "";
  return ` None of these answers the question, by the threshold of ${answer.threshold.toFixed(3)}.`;
}

function comparison(answer) {
  const undropped = answer.without_dropping;
  if (!undropped) return "";
  const moved = answer.order.filter((index, rank) => undropped.order[rank] !== index).length;
  if (!moved) return " No dropping gives the same order.";
  const first = answer.order[0] === undropped.order[0] ? "the same candidate" : "another candidate";
  return ` No dropping ranks ${first} first; ${counted(moved, "place")} of the ranking differ.`;
}

/** Replace what a container shows by an answer. */
export function draw(container, answer, ranker) {
  const stages = stagesOf(answer, ranker);
  const ranked = [...answer.candidates].sort((one, two) => one.rank - two.rank);
  const words = [SCORES, stages.length > 1 ? SHADED : "", ranker.num_layers ? LOG_ODDS : ""];
  container.className = ranked.length > DENSE ? "dense" : "";
  container.replaceChildren(
    bestOf(ranked[0]),
    figures(answer),
    stages.length > 1
      ? part("What each exit did", FELL, board(stages, ranked))
      : part("In order", "The ranker scores each candidate once.", board(stages, ranked)),
    part("Every score", words.join(""), sheet(stages, ranked, answer.without_dropping)),
  );
}

function bestOf(candidate) {
  return element(
    "div",
    { class: "best" },
    element("h3", { class: "muted" }, "Ranked first"),
    element("p", { class: "text", dir: "auto" }, candidate.text),
    element("p", { class: "muted number" }, `relevance ${relevance(candidate)}`),
  );
}

export function part(title, words, content) {
  const note = element("p", { class: "muted" }, words);
  return element("div", { class: "part" }, element("h3", {}, title), note, content);
}

function figures(answer) {
  const list = element("dl", { class: "figures" }, figure("This ranking", answer, false));
  if (answer.without_dropping) list.append(figure("With no dropping", answer.without_dropping, true));
  return list;
}

function figure(title, answer, plain) {
  const work = answer.cost.relative;
  const value = element("dd", { class: plain ? "plain" : "" });
  if (work) {
    value.append(`${percent(work)} of the full encoder's work, ${duration(answer.seconds)}`, meter(work));
  } else {
    value.append(duration(answer.seconds));
  }
  return element("div", {}, element("dt", {}, title), value);
}

function meter(share) {
  const bar = element("i");
  bar.style.setProperty("--share", Math.min(1, share));
  return element("span", { class: "meter", "aria-hidden": "true" }, bar);
}

/** The candidates in columns, each where it was scored last. */
function board(stages, ranked) {
  const columns = stages.map((stage) => column(stage, ranked));
  const blank = ranked.filter((candidate) => candidate.blank);
  if (blank.length) columns.push(blankColumn(blank));
  const grid = element("div", { class: "board" }, ...columns);
  grid.style.setProperty("--columns", columns.length);
  return scrolling("Candidates by exit", grid);
}

/** A region that scrolls sideways by keyboard where it is wider than the page. */
export function scrolling(label, content, name = "scroll") {
  return element("div", { class: name, role: "region", "aria-label": label, tabindex: "0" }, content);
}

function column(stage, ranked) {
  const here = ranked.filter((candidate) => stage.stopped.includes(candidate));
  const facts = [`${stage.scored} scored`];
  if (!stage.last) facts.push(`${here.length} dropped`);
  const head = element(
    "header",
    {},
    element("h4", {}, stage.name),
    element("p", { class: "muted number" }, facts.join(", ")),
    ...(stage.cost === null ? [] : [costOf(stage), meter(stage.cost)]),
  );
  const list = element("ol", { role: "list" }, ...here.map((candidate) => card(candidate)));
  const body = here.length ? list : element("p", { class: "muted empty" }, "None stopped here.");
  return element("section", { class: `exit ${stage.last ? "last" : "fallen"}` }, head, body);
}

function costOf(stage) {
  return element("p", { class: "muted number" }, `cost so far ${percent(stage.cost)}`);
}

function blankColumn(blank) {
  const head = element(
    "header",
    {},
    element("h4", {}, "Blank"),
    element("p", { class: "muted" }, "not scored"),
  );
  const list = element("ol", { role: "list" }, ...blank.map((candidate) => card(candidate)));
  return element("section", { class: "exit blank" }, head, list);
}

function card(candidate) {
  const scores = candidate.exit_scores.filter(isScore);
  const trail = element("div", { class: "trail" });
  if (scores.length) {
    const before = scores.slice(0, -1).map((score) => `${number(score)} \u2192 `);
    trail.append(unseen("scores "), before.join(""), element("b", {}, number(scores[scores.length - 1])));
  }
  if (candidate.dropped) trail.append(" ", element("span", { class: "tag" }, "dropped"));
  if (candidate.truncated) trail.append(" ", element("span", { class: "tag" }, "truncated"));
  return element(
    "li",
    { "data-index": candidate.index },
    element("span", { class: "place" }, unseen("rank "), String(candidate.rank)),
    element("div", { class: "text", dir: "auto" }, candidate.text || "(no text)"),
    trail,
  );
}

/** The table of every score, with the ranks of no dropping beside it. */
function sheet(stages, ranked, undropped) {
  const heads = [header("Rank"), header("Candidate", "left")];
  heads.push(...stages.map((stage) => header(stages.length > 1 ? stage.name : "Score")), header("Relevance"));
  if (undropped) heads.push(header("Rank, no dropping", "beside"), header("Score, no dropping"));
  const undroppedRows = new Map((undropped ? undropped.candidates : []).map((row) => [row.index, row]));
  const rows = ranked.map((candidate) => row(candidate, stages, undroppedRows.get(candidate.index)));
  const caption = element("caption", { class: "unseen" }, "Every score");
  const head = element("thead", {}, element("tr", {}, ...heads));
  const table = element("table", {}, caption, head, element("tbody", {}, ...rows));
  label(table);
  return scrolling("Every score", table, "scroll sheet");
}

/** Say in each cell what its column is called, and the roles of all, which a narrow screen's layout takes away. */
export function label(table) {
  const names = [...table.tHead.rows[0].cells].map((head) => head.textContent);
  for (const row of table.rows) {
    row.setAttribute("role", "row");
    [...row.cells].forEach((cell, index) => {
      cell.dataset.label = names[index];
      cell.setAttribute("role", ROLES[cell.scope] || "cell");
    });
  }
  table.setAttribute("role", "table");
  for (const part of [table.tHead, ...table.tBodies]) part.setAttribute("role", "rowgroup");
}

export function header(text, name = "") {
  return element("th", { scope: "col", class: name }, text);
}

function row(candidate, stages, undropped) {
  const cells = [
    element("td", {}, String(candidate.rank)),
    element("th", { scope: "row", dir: "auto" }, candidate.text || "(no text)"),
  ];
  const last = lastStage(candidate);
  stages.forEach((stage, index) => {
    const score = candidate.exit_scores[index];
    const name = index === last ? (candidate.dropped ? "stop" : "kept") : "";
    cells.push(
      isScore(score)
        ? element("td", { class: name }, number(score), name === "stop" ? droppedHere() : null)
        : element("td", { class: "none" }, unseen("not scored"), dash()),
    );
  });
  cells.push(element("td", {}, relevance(candidate)));
  if (undropped) {
    cells.push(element("td", { class: "beside" }, String(undropped.rank), " ", moved(candidate, undropped)));
    cells.push(element("td", {}, isScore(undropped.score) ? number(undropped.score) : dash()));
  }
  return element("tr", { "data-index": candidate.index }, ...cells);
}

function droppedHere() {
  return element("span", {}, element("span", { "aria-hidden": "true" }, " \u2715"), unseen(", dropped here"));
}

function dash() {
  return element("span", { "aria-hidden": "true" }, "\u2013");
}

/** How far a candidate stands from its place with no dropping. */
function moved(candidate, undropped) {
  const places = candidate.rank - undropped.rank;
  if (!places) return element("span", { class: "moved" }, unseen("the same"));
  const arrow = `${places > 0 ? "\u2191" : "\u2193"}${Math.abs(places)}`;
  const words = `${counted(Math.abs(places), "place")} ${places > 0 ? "higher" : "lower"}`;
  return element("span", { class: "moved" }, element("span", { "aria-hidden": "true" }, arrow), unseen(words));
}
