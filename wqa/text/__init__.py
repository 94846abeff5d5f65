"""Tokenizers, pair encoding, and batches by token budget."""
from wqa.text.batching import bucketed, pack_batches, plan_batches, split_rows
from wqa.text.encoding import EncodedPair, PairEncoder, pad_pairs
from wqa.text.tokenizers import Tokenizer, load_tokenizer

__all__ = [
    "EncodedPair", "PairEncoder", "Tokenizer", "bucketed", "load_tokenizer", "pack_batches", "pad_pairs",
    "plan_batches", "split_rows",
]
