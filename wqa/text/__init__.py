"""Tokenizers, pairs, windows, masks, tokenized corpora, and batches by token budget."""

from wqa.text.batching import bucketed, pack_batches, plan_batches, plan_by_question, split_rows
from wqa.text.inputs import PairInputs, TextInput, pad_pairs
from wqa.text.long_questions import (
    PreparedQuestions,
    naming_file,
    note_long_questions,
    prepare_questions,
)
from wqa.text.split_inputs import SingleInputs, SplitInputs, SplitPair
from wqa.text.store import PairStore, build_store, is_store
from wqa.text.tokenized import TokenizedPairs, tokenize_pairs
from wqa.text.tokenizers import Located, Tokenizer
from wqa.text.vocabularies import load_tokenizer
from wqa.text.words import WordTokenizer, embedding_matrix, split_words

__all__ = [
    "Located",
    "PairInputs",
    "PairStore",
    "PreparedQuestions",
    "SingleInputs",
    "SplitInputs",
    "SplitPair",
    "TextInput",
    "TokenizedPairs",
    "Tokenizer",
    "WordTokenizer",
    "bucketed",
    "build_store",
    "embedding_matrix",
    "is_store",
    "load_tokenizer",
    "naming_file",
    "note_long_questions",
    "pack_batches",
    "pad_pairs",
    "plan_batches",
    "plan_by_question",
    "prepare_questions",
    "split_rows",
    "split_words",
    "tokenize_pairs",
]
