"""Readers of spans of other libraries, in Hugging Face's form."""

from __future__ import annotations

from wqa.models import Network
from wqa.pretrained.names import Names, array_names
from wqa.pretrained.source import DirectoryLayout, Source


class SpanLayout(DirectoryLayout):
    """A head of spans, with a logit of the start and one of the end."""

    system = "reader"
    head = "head of spans"

    def recognizes(self, files: Source) -> bool:
        return files.has_spans()

    def max_length(self, network: Network) -> int:
        return 384  # of BERT's inputs on SQuAD

    def names(self, network: Network) -> Names:
        return array_names("head.out", ["qa_outputs"])
