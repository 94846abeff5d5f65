// Draws an answer of /ask: the sentences of a collection, and what each exit read and dropped.

import { counted, duration, element, header, label, part, percent, relevance, scrolling } from "./ranking.js";

const WHERE = "Each between the sentences around it in its document.";
const FUNNEL = "Sentences that each exit scored, and those that it dropped.";

/** One sentence of what happened, which a screen reader hears. */
export function summaryOfAnswer(answer) {
  if (!answer.documents.length) return "No document has a word of the question.";
  const found = `${counted(answer.ranked, "sentence")} of ${counted(answer.documents.length, "document")}`;
  const parts = [`${found} ranked in ${duration(answer.seconds)}`];
  if (answer.left_out) parts.push(`${answer.left_out} left out, above the limit`);
  if (answer.cost && answer.cost.relative) parts.push(`${percent(answer.cost.relative)} of the full encoder's work`);
  const none = answer.answered === false ? ` No answer found, by the threshold of ${answer.threshold.toFixed(3)}.` : "";
  return `${parts.join(", ")}.${none}`;
}

/** Replace what a container shows by an answer. */
export function drawAnswer(container, answer, ranker) {
  container.className = "";
  const parts = [];
  if (answer.sentences.length) parts.push(part("Sentences", WHERE, sentences(answer)));
  if (answer.exits.length > 1) parts.push(part("What each exit did", FUNNEL, funnel(answer, ranker)));
  container.replaceChildren(...parts);
}

function sentences(answer) {
  const items = answer.sentences.map((sentence) => item(sentence, answer.documents[sentence.document]));
  return element("ol", { class: "answers", role: "list" }, ...items);
}

/** A sentence, of which the part is marked that gave its score. */
function marked(sentence) {
  // A window counts code points, of which a string has one or two units each.
  const points = Array.from(sentence.text);
  const [start, end] = sentence.window || [0, points.length];
  const cut = (from, to) => points.slice(from, to).join("");
  return [cut(0, start), element("mark", {}, cut(start, end)), cut(end)];
}

function item(sentence, document) {
  const facts = `${document.title || document.id}, relevance ${relevance(sentence)}`;
  const before = sentence.before ? `${sentence.before} ` : "";
  const after = sentence.after ? ` ${sentence.after}` : "";
  return element(
    "li",
    {},
    element("p", { class: "passage", dir: "auto" }, before, ...marked(sentence), after),
    element("p", { class: "muted" }, facts),
  );
}

function funnel(answer, ranker) {
  const heads = [header("Exit", "left"), header("Read"), header("Dropped")];
  const rows = answer.exits.map((exit, index) =>
    element(
      "tr",
      {},
      element("th", { scope: "row" }, ranker.num_layers ? `Layer ${exit.exit}` : `Stage ${index + 1}`),
      element("td", {}, String(exit.read)),
      element("td", {}, String(exit.dropped)),
    ),
  );
  const caption = element("caption", { class: "unseen" }, "What each exit did");
  const head = element("thead", {}, element("tr", {}, ...heads));
  const table = element("table", {}, caption, head, element("tbody", {}, ...rows));
  label(table);
  return scrolling("What each exit did", table, "scroll sheet");
}
