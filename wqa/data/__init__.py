"""Records, canonical JSONL, documents, filters, and the built-in corpus."""

from wqa.config import parse_json, read_json
from wqa.data.builtin import builtin_path
from wqa.data.documents import Document, read_documents, write_documents
from wqa.data.files import atomic_writer, storage_errors
from wqa.data.filters import FILTERS, count, filter_questions
from wqa.data.formats import read_candidates, read_questions, write_questions
from wqa.data.records import Candidate, Question

__all__ = [
    "Candidate",
    "Document",
    "FILTERS",
    "Question",
    "atomic_writer",
    "builtin_path",
    "count",
    "filter_questions",
    "parse_json",
    "read_candidates",
    "read_documents",
    "read_json",
    "read_questions",
    "storage_errors",
    "write_documents",
    "write_questions",
]
