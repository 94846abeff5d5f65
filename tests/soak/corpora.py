"""Fuzzed corpora: JSONL, tables, TREC files, candidates, and what the data scripts read."""

import collections
import importlib
import json

from soak.attack import Attack, Fault
from soak.mutations import damage_json, damage_line

#: Lines that a try fuzzes, one at a time.
BATCH = 100


class Format:
    """A format, a small file of it, and its reader.

    Parameters
    ----------
    lines : list of bytes
        The file.
    read : callable
        Takes a path and returns the records: tuples of a question, which groups them, and values.
    weight : float
        How often the format is drawn.
    is_json : bool
        Whether each line is JSON, whose structure is changed as well.
    fixed : int
        Lines at the head that all others depend on, such as a header.
    """

    def __init__(self, lines, read, weight=1.0, is_json=False, fixed=0):
        self.lines, self.read, self.weight = lines, read, weight
        self.is_json, self.fixed = is_json, fixed
        #: Records of the file without one of its lines, by the line's index.
        self.others = {}


class Corpora(Attack):
    """One line of a small corpus is fuzzed. The reader refuses it by an error of `wqa.errors`, or
    gives records, among them those of all lines that are untouched, in their order.
    """

    name = "corpora"
    unit = "lines"
    weight = 24
    threads = 1

    def prepare(self):
        archives = self.material / "archives"
        self._detokenize = importlib.import_module("trecqa").Detokenizer("#")
        self._path = self.fresh("corpus") / "file"

        def lines(*parts):
            return archives.joinpath(*parts).read_bytes().splitlines()

        questions = (self.material / "dev.jsonl").read_bytes().splitlines()
        self._formats = {
            "jsonl": Format(questions, _read_jsonl, 5, is_json=True),
            "run": Format(lines("retrieval", "run"), _read_run, 3),
            "qrels": Format(lines("retrieval", "qrels"), _read_qrels, 3),
            "candidates": Format(lines("retrieval", "sentences"), _read_candidates, 2),
            "wikiqa": Format(lines("wikiqa", "WikiQA-dev.tsv"), self._read_wikiqa, 2, fixed=1),
            "asnq": Format(lines("asnq", "dev.tsv"), _read_asnq, 2),
            "table": Format(lines("table.tsv"), _read_table, 2, fixed=1),
            "texts": Format(lines("retrieval", "sentences"), _read_texts, 2),
            "trecqa": Format(lines("trecqa", "dev.xml")[:34], self._read_trecqa, 0.3),
            "squad": Format(lines("squad", "dev-v2.0.json"), _read_squad, 0.02, is_json=True),
        }
        for name, form in self._formats.items():
            if not self._records(form, form.lines):
                raise Fault(f"{name}: the undamaged file gives no record")

    def attempt(self, random):
        names = list(self._formats)
        name = random.choices(names, [self._formats[key].weight for key in names])[0]
        form = self._formats[name]
        count = BATCH if form.weight > 0.1 else 3
        for _ in range(count):
            self._fuzz(random, name, form)
        return count

    def _fuzz(self, random, name, form):
        from wqa.errors import WqaError

        index = random.randrange(len(form.lines))
        line = form.lines[index]
        if form.is_json and random.random() < 0.4:
            damaged = damage_json(random, line)
        else:
            damaged = damage_line(random, line)
        lines = [*form.lines[:index], damaged, *form.lines[index + 1 :]]
        try:
            records = self._records(form, lines)
        except WqaError as error:
            if "\n" in str(error):
                raise Fault(f"{name}: an error of several lines: {error}") from None
            return
        if damaged == line or index < form.fixed:
            return
        lost = _first_lost(self._others(name, form, index), records)
        if lost:
            raise Fault(f"{name}: {lost} is lost; line {index + 1} became {damaged[:200]!r}")

    def _records(self, form, lines):
        self._path.write_bytes(b"".join(line + b"\n" for line in lines))
        return list(form.read(self._path))

    def _others(self, name, form, index):
        """Records of the untouched lines, by question."""
        if index not in form.others:
            if name == "trecqa":
                records = _of_other_lines(self._records(form, form.lines), form.lines, index)
            elif len(form.lines) == 1:
                records = []
            else:
                records = self._records(form, form.lines[:index] + form.lines[index + 1 :])
            form.others[index] = _grouped(records)
        return form.others[index]

    def _read_wikiqa(self, path):
        wikiqa = importlib.import_module("wikiqa")
        path.replace(path.with_name("WikiQA-dev.tsv"))
        lines, where = wikiqa.read_split(path.parent, "dev")
        return _by_question(wikiqa.parse(wikiqa.parse_rows(lines, where), where))

    def _read_trecqa(self, path):
        target = path.replace(path.with_name("dev.xml"))
        questions = importlib.import_module("trecqa").read(target, "dev", self._detokenize)
        # The text alone groups the candidates: the line of a question, or of a tag, may be fuzzed.
        return [("", candidate.text) for question in questions for candidate in question.candidates]


def _first_lost(others, records):
    """The first record of an untouched line that is not among the records, in its order."""
    actual = _grouped(records)
    for question, expected in others.items():
        left = iter(actual.get(question, ()))
        for record in expected:
            if record not in left:  # consumes the records up to this one
                return (question, *record)
    return None


def _grouped(records):
    groups = collections.defaultdict(list)
    for question, *values in records:
        groups[question].append(tuple(values))
    return groups


def _of_other_lines(records, lines, index):
    """Records of TREC-QA but for the one whose text stands on a line."""
    text = lines[index].replace(b"\t", b" ").decode("utf-8")
    kept = []
    for record in records:
        if record[1].replace(" ", "") != text.replace(" ", ""):
            kept.append(record)
    return kept


def _by_question(questions):
    records = []
    for question in questions:
        for candidate in question.candidates:
            records.append((question.question, candidate.text, candidate.label, candidate.id))
    return records


def _read_jsonl(path):
    from wqa.data import read_questions

    return _by_question(read_questions(path))


def _read_table(path):
    return _read_jsonl(path.replace(path.with_name("table.tsv")))


def _read_run(path):
    from wqa.evaluation import read_run

    return _by_document(read_run(path))


def _read_qrels(path):
    from wqa.evaluation import read_qrels

    return _by_document(read_qrels(path))


def _by_document(values):
    records = []
    for question, documents in values.items():
        records += [(question, document, value) for document, value in documents.items()]
    return records


def _read_candidates(path):
    from wqa.cli.rank import read_candidates

    return [("", text) for text in read_candidates(str(path))]


def _read_asnq(path):
    asnq = importlib.import_module("asnq")
    records = []
    with open(path, "rb") as file:
        for _, _, question, sentence, label in asnq.parse(file, file, path, lambda _: "dev"):
            records.append((question, sentence, label))
    return records


def _read_texts(path):
    texts = importlib.import_module("retrieval").read_texts(path)
    return [("", name, text) for name, text in texts.items()]


def _read_squad(path):
    target = path.replace(path.with_name("dev-v2.0.json"))
    questions = list(importlib.import_module("squad").convert(target))
    for question in questions:
        json.dumps(question.question)
    return _by_question(questions)
