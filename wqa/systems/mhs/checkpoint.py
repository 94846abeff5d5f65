"""``cerberus_model.pt``, the checkpoint of the Multiple-Heads Student's authors.

Their PyTorch code (amazon-science/wqa-cerberus, Matsubara et al. 2022) saves the state dictionary
of a module that shares its layers between several names: ``embeddings`` and
``cerberus_shared_encoder.layer.N`` are the body, ``cerberus_heads.I.layer.J`` and
``cerberus_heads.I.classifier`` are head I. ``core_base_model`` is the encoder from which the
student starts; it repeats the embeddings, the body and head 0. Inside, all names are those of
Hugging Face's ELECTRA. The numbers of layers and heads are in the names alone.
"""

from __future__ import annotations

import collections
import pathlib
import re
from typing import Any, Collection, Dict, Set

from wqa.errors import EncoderError
from wqa.models import Network
from wqa.pretrained.names import (
    HUGGINGFACE,
    Names,
    array_names,
    huggingface_names,
    layer_names,
)

#: Starts of the names of the body's layers, of the heads, and of the encoder that repeats them.
BODY, HEADS, CORE = "cerberus_shared_encoder.layer", "cerberus_heads", "core_base_model"


class StudentLayout:
    """Names in ``cerberus_model.pt``.

    A file's tensors have plain names, which `names` uses, by `plain_names`.
    """

    system = "mhs"
    file_name = "cerberus_model.pt"
    family = "electra"

    def recognizes(self, tensors: Collection[str]) -> bool:
        """Whether a file is of this form."""
        return any(name.startswith(f"{HEADS}.") for name in tensors)

    def plain_names(self, tensors: Collection[str]) -> Dict[str, str]:
        """Plain names of a file's tensors."""
        family, plain = HUGGINGFACE[self.family], {name: name for name in tensors}
        # The repeated encoder alone has the projection of narrow embeddings.
        projection = rf"{CORE}\.(?:{family.prefix}\.)?({family.projection}\..*)"
        for name in tensors:
            match = re.fullmatch(projection, name)
            if match:
                plain.setdefault(match[1], name)
        return plain

    def options(self, path: pathlib.Path, tensors: Collection[str]) -> Dict[str, Any]:
        """Read the configuration of the system from the names of the tensors."""
        numbers: Dict[str, Set[int]] = collections.defaultdict(set)
        for name in tensors:
            for start in (BODY, HEADS, rf"{HEADS}\.\d{{1,6}}\.layer"):
                match = re.match(rf"({start})\.(\d{{1,6}})\.", name)
                if match:
                    numbers[match[1]].add(int(match[2]))
        options = {"body": len(numbers[BODY]), "heads": len(numbers[HEADS])}
        depths = [len(numbers[f"{HEADS}.{head}.layer"]) for head in range(options["heads"])]
        if len(set(depths)) > 1:
            problem = f"layers of the heads: {', '.join(map(str, depths))}"
            raise EncoderError(path, problem, "heads of one depth", "fetch the file again")
        return {**options, "head_layers": depths[0]}

    def names(self, network: Network) -> Names:
        """Names of the tensors of a network."""
        names: Names = {}
        for ours, theirs in huggingface_names(network.encoders[0].config).items():
            body = [re.sub(r"^encoder\.layer\.", f"{BODY}.", name) for name in theirs]
            names[f"backbone.{ours}"] = body
        family, last = HUGGINGFACE[self.family], f"head_{network.exits[-1]}"
        for head in range(network.own_config.heads):
            branch, start = f"{last}.branch_{head + 1}", f"{HEADS}.{head}"
            for layer in range(network.own_config.head_layers):
                tensors = f"{start}.layer.{layer}."
                names.update(layer_names(f"{branch}.layers.{layer}.", family.parts, tensors))
            for part, dense in family.classifier.items():
                names.update(array_names(f"{branch}.head.{part}", [f"{start}.{dense}"]))
        return names
