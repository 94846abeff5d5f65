"""Token ids of a question and k candidates as one input (Di Liello et al. 2022, section 3.2).

A segment is ``<start> text <separator>``, at most L tokens; segment 0 is the question, segment s
the s-th candidate. The paper pads each segment to L. Attention never reads padding, so it changes
nothing but the positions, and here the segments are packed one behind another: padding stands at
the end of a row alone. The mark of a segment is its first position, where heads read the embedding
of the segment: a start token, or the separator before a candidate (`FORMS`).
"""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Sequence, Tuple

import numpy as np

from wqa.engines.inputs import EngineInputs
from wqa.errors import check_choice, check_range
from wqa.text.batching import bucketed, pad_rows
from wqa.text.split_inputs import SplitInputs, SplitPair
from wqa.text.tokenizers import Tokenizer

#: Forms of an input, and their names.
#:
#: ``positions``: how tokens are numbered. ``tokens``: one after another, as the encoder's family
#: numbers the tokens of a text. The authors' code does so, as RoBERTa does not count padding.
#: ``slots``: token j of segment s has position s L + j, as in the paper, whatever the lengths.
#:
#: ``missing``: what stands for a candidate that is missing in a group of fewer than k. ``absent``:
#: nothing. ``visible``: a segment without a text, which all others see, as in the authors' code.
#:
#: ``marks``: first token of a candidate, which section 3.3 calls "[CLS] / [SEP]". ``start``: the
#: start token, as in the authors' code. ``separator``: a second separator, as in RoBERTa's pairs.
#: An encoder gives all start tokens of an input nearly the same encoding, so that candidates look
#: alike to the head.
FORMS = {
    "positions": ("tokens", "slots"),
    "missing": ("absent", "visible"),
    "marks": ("start", "separator"),
}
#: Mark of a segment that is absent.
ABSENT = -1


class JointInput(NamedTuple):
    """A question and at most k candidates as one input of an encoder.

    Shapes: `token_ids` (length,), `token_types` (length,), `positions` (length,), `marks` (k + 1,).
    """

    token_ids: np.ndarray
    token_types: np.ndarray
    positions: Any  # None for those of the encoder's family
    marks: np.ndarray

    @property
    def length(self) -> int:
        """Number of tokens, special tokens included."""
        return len(self.token_ids)

    @property
    def empty(self) -> bool:
        """Whether there is no candidate, as of a pair; never."""
        return False


class JointInputs(SplitInputs):
    """Token ids of a question with groups of k candidates.

    A text is cut to L tokens with its two special tokens, whatever the others. A longer question is
    over-long.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        segment_length: int = 64,
        k: int = 5,
        positions: str = "tokens",
        missing: str = "absent",
        long_questions: str = "error",
        marks: str = "start",
    ) -> None:
        check_range("k", k, 1)
        form = {"positions": positions, "missing": missing, "marks": marks}
        for name, known in FORMS.items():
            check_choice(name, form[name], known)
        super().__init__(tokenizer, segment_length, segment_length, long_questions)
        self.segment_length, self.k = segment_length, k
        self._settings = {"segment_length": segment_length, "k": k, **form}
        names = ["token_ids", "token_types", "marks", "valid_length"]
        if positions == "slots":
            names.insert(2, "positions")
        self.names = tuple(names)

    def _too_long(self, tokens: str, room: int) -> Tuple[str, str]:
        segment = f"as a segment has {self.max_length} with its special tokens"
        return f"{tokens} tokens", f"at most {room}, {segment}"

    def settings(self) -> Dict[str, Any]:
        return self._settings

    @property
    def longest(self) -> int:
        """Most tokens of an input."""
        return self.max_length * (self.k + 1)

    def array_types(self) -> Dict[str, str]:
        types = dict.fromkeys(self.names, "int32 (B, L)")
        types["marks"] = f"float32 (B, {self.k + 1}), first position of each segment, -1 if absent"
        types["valid_length"] = "float32 (B,)"
        types["scores"] = f"float32 (B, {self.k}), log-odds, 0 for a missing candidate"
        return types

    def split(self, question: str, candidates: Sequence[str], name: str = "") -> List[SplitPair]:
        """Encode a question and its candidates as segments, for `join`."""
        return super().encode(question, candidates, name)

    def encode(self, question: str, candidates: Sequence[str], name: str = "") -> List[JointInput]:
        """Encode a question with its candidates, k by k in their order."""
        return self.network_inputs(self.split(question, candidates, name))

    def network_inputs(self, pairs: Sequence[SplitPair]) -> List[JointInput]:
        """Join the segments of a question and its candidates, k by k in their order."""
        non_blank = [pair for pair in pairs if not pair.empty]
        starts = range(0, len(non_blank), self.k)
        return [self.join(non_blank[start : start + self.k]) for start in starts]

    def join(self, pairs: Sequence[SplitPair]) -> JointInput:
        """Join the segments of a question and at most k candidates to one input."""
        segments = [pairs[0].question.token_ids]
        segments += [pair.document.token_ids for pair in pairs]
        if self._settings["missing"] == "visible":
            segments += [self.document.assemble(()).token_ids] * (self.k - len(pairs))
        lengths = np.array([len(segment) for segment in segments])
        starts = np.cumsum(lengths) - lengths
        token_ids = np.concatenate(segments)
        if self._settings["marks"] == "separator":
            token_ids[starts[1:]] = self.tokenizer.separator_id
        token_types = np.repeat(np.arange(len(segments), dtype=np.int32), lengths)
        positions = None
        if self._settings["positions"] == "slots":
            first = np.arange(len(segments)) * self.segment_length - starts
            positions = (np.arange(len(token_ids)) + np.repeat(first, lengths)).astype(np.int32)
        marks = np.full(self.k + 1, ABSENT, dtype=np.int32)
        marks[: len(starts)] = starts
        return JointInput(token_ids, token_types, positions, marks)

    def pad(  # type: ignore[override]
        self, pairs: Sequence[JointInput], most: int = 0
    ) -> Tuple[np.ndarray, ...]:
        """Arrange inputs in the rows of one padded batch, the arrays of `names`.

        Their length is rounded up to a bucket, up to ``most`` tokens, `longest` by default.
        """
        lengths = [joint.length for joint in pairs]
        length = bucketed(max(lengths), most or self.longest)
        arrays = [
            pad_rows([joint.token_ids for joint in pairs], length, self.tokenizer.padding_id),
            pad_rows([joint.token_types for joint in pairs], length),
        ]
        if "positions" in self.names:
            arrays.append(pad_rows([joint.positions for joint in pairs], length))
        arrays.append(np.stack([joint.marks for joint in pairs]).astype(np.float32))
        return (*arrays, np.array(lengths, dtype=np.float32))


class JointEngineInputs(EngineInputs):
    """Joint inputs, of which the heads read the marks."""

    def read_positions(self, pairs: Sequence[JointInput]) -> np.ndarray:
        return np.stack([joint.marks for joint in pairs])

    def embed(self, layers: Any, pairs: Sequence[JointInput], batch: Any) -> None:
        types = np.concatenate([joint.token_types for joint in pairs])
        positions = None
        if pairs[0].positions is not None:
            positions = np.concatenate([joint.positions for joint in pairs])
        layers.embed(pairs, batch, types, positions)
