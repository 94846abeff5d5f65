"""Tokenizers, pairs, windows, masks, tokenized corpora, and batches by token budget."""

from wqa.text.batching import bucketed, pack_batches, plan_batches, plan_by_question, split_rows
from wqa.text.claims import OF_CLAIMS, EncodedClaim, PreparedClaims, encode_claim, prepare_claims
from wqa.text.decoupled import SingleEncoder, SplitEncoder, SplitPair
from wqa.text.encoding import Encoded, PairEncoder, pad_pairs
from wqa.text.joint import JointEncoder, JointInput, pad_inputs
from wqa.text.lists import ListEncoder, WordList, WordPair, plan_lists
from wqa.text.long_questions import (
    PreparedQuestions,
    naming_file,
    note_long_questions,
    prepare_questions,
)
from wqa.text.masking import Masked, Masking
from wqa.text.store import PairStore, build_store, is_store
from wqa.text.tokenized import TokenizedPairs, tokenize_pairs
from wqa.text.tokenizer_files import load_tokenizer
from wqa.text.tokenizers import Located, Tokenizer
from wqa.text.windows import Window, WindowEncoder
from wqa.text.words import WordTokenizer, embedding_matrix, split_words

__all__ = [
    "Encoded",
    "EncodedClaim",
    "JointEncoder",
    "JointInput",
    "ListEncoder",
    "Located",
    "Masked",
    "Masking",
    "OF_CLAIMS",
    "PairEncoder",
    "PairStore",
    "PreparedClaims",
    "PreparedQuestions",
    "SingleEncoder",
    "SplitEncoder",
    "SplitPair",
    "TokenizedPairs",
    "Tokenizer",
    "Window",
    "WindowEncoder",
    "WordList",
    "WordPair",
    "WordTokenizer",
    "bucketed",
    "build_store",
    "embedding_matrix",
    "encode_claim",
    "is_store",
    "load_tokenizer",
    "naming_file",
    "note_long_questions",
    "pack_batches",
    "pad_inputs",
    "pad_pairs",
    "plan_batches",
    "plan_by_question",
    "plan_lists",
    "prepare_claims",
    "prepare_questions",
    "split_rows",
    "split_words",
    "tokenize_pairs",
]
