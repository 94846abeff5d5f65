"""Directories of the joint models of MSPP's authors (Di Liello et al. 2022).

Their PyTorch code (amazon-science/wqa-multi-sentence-inference) saves classes ``JointRoberta...``
as Hugging Face's library does. ``config.json`` is that of RoBERTa with ``k``, ``sentence_msl`` (L)
and ``head_type``, and the token-type table has k + 1 rows. The head is one classifier inside
another. A model from pre-training also holds the head of masked language modelling, which nothing
here takes.
"""

from __future__ import annotations

from typing import Any, Dict

from wqa.errors import EncoderError, shorten
from wqa.models import Network
from wqa.pretrained.names import Names, array_names
from wqa.pretrained.source import DirectoryLayout, Source
from wqa.systems.mspp.config import HEADS, SINGLE_LABEL

#: Start of the names of the head's tensors.
HEAD = "classifier.classifier"


class JointLayout(DirectoryLayout):
    """Settings and names of the authors' directories."""

    system = "mspp"

    def recognizes(self, files: Source) -> bool:
        # One of masked language modelling alone is an encoder with k + 1 token types.
        has_head = any(name.startswith("classifier.") for name in files.shapes())
        return has_head and "sentence_msl" in files.settings and "head_type" in files.settings

    def options(self, files: Source) -> Dict[str, Any]:
        path, settings = files.where / "config.json", files.settings
        head = settings["head_type"]
        if head not in HEADS:
            expected = "one of " + ", ".join(HEADS)
            raise EncoderError(path, f"head_type {shorten(head)}", expected)
        options: Dict[str, Any] = {"head": head}
        for ours, theirs in (("k", "k"), ("segment_length", "sentence_msl")):
            value = settings.get(theirs)
            if type(value) is not int:
                problem = f"{theirs} {shorten(value)}"
                raise EncoderError(path, problem, "a whole number", "fetch the file again")
            options[ours] = value
        labels = files.shapes().get(f"{HEAD}.out_proj.bias", (0,))[0]
        if head in SINGLE_LABEL:
            options["labels"] = labels
        elif labels != 2:
            problem = f"a head {head} of {labels} labels"
            raise EncoderError(path, problem, "2: wrong and right candidates")
        # What the model was trained with, so that it keeps its scores.
        return {**options, "positions": "tokens", "missing": "visible", "aggregation": "sum"}

    def max_length(self, network: Network) -> int:
        return network.own_config.segment_length

    def names(self, network: Network) -> Names:
        return {
            **array_names("head.dense", [f"{HEAD}.dense"]),
            **array_names("head.out", [f"{HEAD}.out_proj"]),
        }
