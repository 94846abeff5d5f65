"""Tokenizers, pair encoding, and batches by token budget."""

from wqa.text.batching import bucketed, pack_batches, plan_batches, plan_by_question, split_rows
from wqa.text.encoding import EncodedPair, PairEncoder, pad_pairs
from wqa.text.store import PairStore, is_store
from wqa.text.store_builder import build_store
from wqa.text.tokenizers import Tokenizer, load_tokenizer

__all__ = [
    "EncodedPair",
    "PairEncoder",
    "PairStore",
    "Tokenizer",
    "bucketed",
    "build_store",
    "is_store",
    "load_tokenizer",
    "pack_batches",
    "pad_pairs",
    "plan_batches",
    "plan_by_question",
    "split_rows",
]
