"""Fine-tuned classifiers of other libraries, such as TANDA's, and runs of the monolithic ranker."""

from __future__ import annotations

from typing import Any, Dict

from wqa.models import Network
from wqa.pretrained.source import DirectoryLayout, Source


class ClassifierLayout(DirectoryLayout):
    """A classifier of one output, which is the score, or of two, whose log-odds are."""

    system = "pairwise"
    head = "classifier"

    def recognizes(self, files: Source) -> bool:
        return files.labels() in (1, 2) and not files.has_spans()

    def options(self, files: Source) -> Dict[str, Any]:
        return {"exits": files.exits or (files.config.num_layers,)}

    def fill(self, network: Network, files: Source) -> None:
        files.fill_classifier(network.heads[0])
