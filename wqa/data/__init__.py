"""Records, canonical JSONL, documents, claims, filters, and the built-in corpus."""

from wqa.config import parse_json, read_json
from wqa.data.documents import (
    Claim,
    Document,
    read_claims,
    read_documents,
    write_claims,
    write_documents,
)
from wqa.data.folders import read_collection, read_folder, read_table
from wqa.data.formats import builtin_path, read_candidates, read_questions, write_questions
from wqa.data.records import DEFAULT_FILTER, FILTERS, Candidate, Question, count, filter_questions

__all__ = [
    "Candidate",
    "Claim",
    "DEFAULT_FILTER",
    "Document",
    "FILTERS",
    "Question",
    "builtin_path",
    "count",
    "filter_questions",
    "parse_json",
    "read_candidates",
    "read_collection",
    "read_claims",
    "read_documents",
    "read_folder",
    "read_json",
    "read_questions",
    "read_table",
    "write_claims",
    "write_documents",
    "write_questions",
]
