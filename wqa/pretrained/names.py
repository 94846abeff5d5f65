"""Names of a network's parameters in the files of other libraries and of papers' authors.

A parameter of this package takes one tensor of a file, or several that are joined along the first
axis (query, key and value). Hugging Face's names are given without the prefix of the family.
"""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Any, Collection, Dict, List, Mapping, Tuple

from wqa.config import BACKBONES, BackboneConfig
from wqa.models import Network

#: Tensors of a file by the parameter that they fill.
Names = Dict[str, List[str]]

#: Kinds of the arrays of a dense layer and of a layer normalization.
DENSE, NORM = ("weight", "bias"), ("gamma", "beta")

#: Parts of a layer by the part of `wqa.models.backbone.EncoderLayer` that they fill.
BERT_LAYER = {
    "qkv": ["attention.self.query", "attention.self.key", "attention.self.value"],
    "proj": ["attention.output.dense"],
    "attention_norm": ["attention.output.LayerNorm"],
    "ffn_1": ["intermediate.dense"],
    "ffn_2": ["output.dense"],
    "ffn_norm": ["output.LayerNorm"],
}
ALBERT_LAYER = {
    "qkv": ["attention.query", "attention.key", "attention.value"],
    "proj": ["attention.dense"],
    "attention_norm": ["attention.LayerNorm"],
    "ffn_1": ["ffn"],
    "ffn_2": ["ffn_output"],
    "ffn_norm": ["full_layer_layer_norm"],
}
ZOO_LAYER = {
    "qkv": [f"attention_cell.proj_{part}" for part in ("query", "key", "value")],
    "proj": ["proj"],
    "attention_norm": ["layer_norm"],
    "ffn_1": ["ffn.ffn_1"],
    "ffn_2": ["ffn.ffn_2"],
    "ffn_norm": ["ffn.layer_norm"],
}

#: Classifiers on the first position: tensors by our dense layer and our output layer. The first has
#: its dense layer in the encoder, as the pooler.
POOLED_CLASSIFIER = {"dense": "pooler.dense", "out": "classifier"}
OWN_CLASSIFIER = {"dense": "classifier.dense", "out": "classifier.out_proj"}


@dataclasses.dataclass(frozen=True)
class HuggingFaceNames:
    """Hugging Face's names of a family's classes, tensors and settings."""

    class_name: str
    prefix: str
    classifier: Dict[str, str]
    layer: str = "encoder.layer.{}."
    parts: Dict[str, List[str]] = dataclasses.field(default_factory=lambda: BERT_LAYER)
    projection: str = "embeddings_project"
    always_projects: bool = False
    #: Start of the names of the predictor of masked tokens, its dense layer and normalization.
    predictor: Tuple[str, ...] = ()
    embedding_size: int = 0
    head_dropout: str = "classifier_dropout"
    defaults: Dict[str, Any] = dataclasses.field(default_factory=dict)


#: Hugging Face's names by family, a key of `wqa.config.FAMILIES`.
HUGGINGFACE: Dict[str, HuggingFaceNames] = {
    "bert": HuggingFaceNames(
        "Bert",
        "bert",
        POOLED_CLASSIFIER,
        predictor=("cls.predictions.", "transform.dense", "transform.LayerNorm"),
    ),
    "roberta": HuggingFaceNames(
        "Roberta",
        "roberta",
        OWN_CLASSIFIER,
        predictor=("lm_head.", "dense", "layer_norm"),
        defaults={"pad_token_id": 1},
    ),
    "electra": HuggingFaceNames("Electra", "electra", OWN_CLASSIFIER, embedding_size=128),
    "albert": HuggingFaceNames(
        "Albert",
        "albert",
        {"dense": "pooler", "out": "classifier"},
        layer="encoder.albert_layer_groups.{}.albert_layers.0.",
        parts=ALBERT_LAYER,
        projection="encoder.embedding_hidden_mapping_in",
        always_projects=True,
        predictor=("predictions.", "dense", "LayerNorm"),
        embedding_size=128,
        head_dropout="classifier_dropout_prob",
        defaults={
            "hidden_act": "gelu_new",
            "hidden_dropout_prob": 0.0,
            "attention_probs_dropout_prob": 0.0,
            "classifier_dropout_prob": 0.1,
        },
    ),
}

#: Families of GluonNLP's zoo, each with a configuration for what the zoo's files do not say.
ZOO: Dict[str, BackboneConfig] = {
    "bert": BACKBONES["bert_12_768_12"],
    "roberta": BACKBONES["roberta_12_768_12"],
}


def huggingface_names(config: BackboneConfig) -> Names:
    """Names of an encoder's parameters in a Hugging Face directory."""
    family = HUGGINGFACE[config.layout]
    names = {
        "embeddings.word.weight": ["embeddings.word_embeddings.weight"],
        "embeddings.token_type.weight": ["embeddings.token_type_embeddings.weight"],
        "embeddings.position_weight": ["embeddings.position_embeddings.weight"],
        **array_names("embeddings.layer_norm", ["embeddings.LayerNorm"]),
    }
    if config.embedding_size:
        names.update(array_names("embeddings.projection", [family.projection]))
    for number in range(1 if config.shared_layers else config.num_layers):
        names.update(layer_names(f"layers.{number}.", family, family.layer.format(number)))
    return names


def layer_names(ours: str, family: HuggingFaceNames, theirs: str) -> Names:
    """Names of a layer's parameters."""
    names: Names = {}
    for part, tensors in family.parts.items():
        names.update(array_names(ours + part, [theirs + name for name in tensors]))
    return names


def predictor_names(config: BackboneConfig) -> Names:
    """Names of the parameters of the predictor of masked tokens, in a Hugging Face directory."""
    if not HUGGINGFACE[config.layout].predictor:
        return {}
    start, dense, norm = HUGGINGFACE[config.layout].predictor
    names = {**array_names("dense", [start + dense]), **array_names("layer_norm", [start + norm])}
    return {**names, "bias": [f"{start}bias"]}


def zoo_names(config: BackboneConfig) -> Names:
    """Names of an encoder's parameters in the ``.params`` files of GluonNLP 0.10's zoo.

    A parameter without a tensor is 0: the zoo's RoBERTa has no token types.
    """
    has_types = ZOO[config.layout].token_types > 1
    names = {
        "embeddings.word.weight": ["word_embed.0.weight"],
        "embeddings.token_type.weight": ["token_type_embed.0.weight"] if has_types else [],
        "embeddings.position_weight": ["encoder.position_weight"],
        **array_names("embeddings.layer_norm", ["encoder.layer_norm"], NORM),
    }
    for number in range(config.num_layers):
        for part, tensors in ZOO_LAYER.items():
            start = f"encoder.transformer_cells.{number}."
            names.update(
                array_names(f"layers.{number}.{part}", [start + name for name in tensors], NORM)
            )
    return names


def array_names(part: str, tensors: List[str], norm: Tuple[str, str] = DENSE) -> Names:
    """Names of the two arrays of a dense layer or a normalization."""
    names: Names = {}
    is_norm = part.endswith("norm")
    for kind, file_kind in zip(NORM if is_norm else DENSE, norm if is_norm else DENSE):
        names[f"{part}.{kind}"] = [f"{name}.{file_kind}" for name in tensors]
    return names


class CheckpointLayout:
    """Base class of the forms of authors' checkpoints, one for each system that has such a file.

    A file's tensors have plain names, which `names` uses, by `plain_names`.
    """

    #: System whose network the file holds, a key of `wqa.systems.SYSTEMS`.
    system = ""
    #: Name that the authors gave the file.
    file_name = ""
    #: Family of the encoder, a key of `wqa.config.FAMILIES`. The authors' code has its names alone.
    family = ""
    #: Regular expression of the plain names of tensors that may be left over. All others belong to
    #: the network, so that one that its names lack is an error.
    ignored = r".*\.position_ids"

    def recognizes(self, tensors: Collection[str]) -> bool:
        """Whether a file is of this form."""
        raise NotImplementedError

    def plain_names(self, tensors: Collection[str]) -> Dict[str, str]:
        """Plain names of a file's tensors."""
        return {name: name for name in tensors}

    def options(self, path: pathlib.Path, tensors: Collection[str]) -> Dict[str, Any]:
        """Read the configuration of the system from the names of the tensors."""
        raise NotImplementedError

    def names(self, network: Network) -> Names:
        """Names of the tensors of a network."""
        raise NotImplementedError

    def copies(self, network: Network) -> Mapping[str, str]:
        """Tensors that repeat others."""
        return {}

    def further_copies(self, network: Network) -> Mapping[str, str]:
        """Tensors that may repeat others too; they are checked, but not written."""
        return {}
