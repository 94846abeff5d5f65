"""Names of a network's parameters in the files of other libraries and of papers' authors.

A parameter of this package takes one tensor of a file, or several that are joined along the first
axis (query, key and value). Hugging Face's names are given without the prefix of the family.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Dict, List, Tuple

from wqa.config import BACKBONES, BackboneConfig

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
MPNET_LAYER = {
    **BERT_LAYER,
    "qkv": ["attention.attn.q", "attention.attn.k", "attention.attn.v"],
    "proj": ["attention.attn.o"],
    "attention_norm": ["attention.LayerNorm"],
}
DISTILBERT_LAYER = {
    "qkv": ["attention.q_lin", "attention.k_lin", "attention.v_lin"],
    "proj": ["attention.out_lin"],
    "attention_norm": ["sa_layer_norm"],
    "ffn_1": ["ffn.lin1"],
    "ffn_2": ["ffn.lin2"],
    "ffn_norm": ["output_layer_norm"],
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
    #: Predictor of masked tokens: its dense layer, its normalization and its bias of words.
    predictor: Tuple[str, ...] = ()
    #: The table of biases by relative position, which all layers share; empty for none.
    relative_positions: str = ""
    head_dropout: str = "classifier_dropout"
    #: Names of settings that are not Hugging Face's usual ones, by these.
    settings: Dict[str, str] = dataclasses.field(default_factory=dict)
    defaults: Dict[str, Any] = dataclasses.field(default_factory=dict)
    #: The one value of each setting that is supported, beside those of all families.
    supported: Dict[str, Any] = dataclasses.field(default_factory=dict)


_ROBERTA = HuggingFaceNames(
    "Roberta",
    "roberta",
    OWN_CLASSIFIER,
    predictor=("lm_head.dense", "lm_head.layer_norm", "lm_head.bias"),
    defaults={"pad_token_id": 1},
)

#: Hugging Face's names by family, a key of `wqa.config.FAMILIES`.
HUGGINGFACE: Dict[str, HuggingFaceNames] = {
    "bert": HuggingFaceNames(
        "Bert",
        "bert",
        POOLED_CLASSIFIER,
        predictor=(
            "cls.predictions.transform.dense",
            "cls.predictions.transform.LayerNorm",
            "cls.predictions.bias",
        ),
    ),
    "roberta": _ROBERTA,
    "xlm-roberta": dataclasses.replace(_ROBERTA, class_name="XLMRoberta"),
    "mpnet": dataclasses.replace(
        _ROBERTA,
        class_name="MPNet",
        prefix="mpnet",
        parts=MPNET_LAYER,
        relative_positions="encoder.relative_attention_bias",
        supported={"relative_attention_num_buckets": 32},
    ),
    "distilbert": HuggingFaceNames(
        "DistilBert",
        "distilbert",
        {"dense": "pre_classifier", "out": "classifier"},
        layer="transformer.layer.{}.",
        parts=DISTILBERT_LAYER,
        predictor=("vocab_transform", "vocab_layer_norm", "vocab_projector.bias"),
        head_dropout="seq_classif_dropout",
        settings={
            "hidden_size": "dim",
            "intermediate_size": "hidden_dim",
            "num_hidden_layers": "n_layers",
            "num_attention_heads": "n_heads",
            "hidden_dropout_prob": "dropout",
            "attention_probs_dropout_prob": "attention_dropout",
            "hidden_act": "activation",
        },
        defaults={"seq_classif_dropout": 0.2},
    ),
    "electra": HuggingFaceNames(
        "Electra", "electra", OWN_CLASSIFIER, defaults={"embedding_size": 128}
    ),
    "albert": HuggingFaceNames(
        "Albert",
        "albert",
        {"dense": "pooler", "out": "classifier"},
        layer="encoder.albert_layer_groups.{}.albert_layers.0.",
        parts=ALBERT_LAYER,
        projection="encoder.embedding_hidden_mapping_in",
        always_projects=True,
        predictor=("predictions.dense", "predictions.LayerNorm", "predictions.bias"),
        head_dropout="classifier_dropout_prob",
        defaults={
            "embedding_size": 128,
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
    """Names of an encoder's parameters in a Hugging Face directory.

    A parameter without a tensor is 0: some families have no token types.
    """
    family = HUGGINGFACE[config.layout]
    types = ["embeddings.token_type_embeddings.weight"]
    names = {
        "embeddings.word.weight": ["embeddings.word_embeddings.weight"],
        "embeddings.token_type.weight": types if config.family.has_token_types else [],
        "embeddings.position_weight": ["embeddings.position_embeddings.weight"],
        **array_names("embeddings.layer_norm", ["embeddings.LayerNorm"]),
    }
    if config.embedding_size:
        names.update(array_names("embeddings.projection", [family.projection]))
    if family.relative_positions:
        names["layers.relative_positions.weight"] = [f"{family.relative_positions}.weight"]
    for number in range(1 if config.shared_layers else config.num_layers):
        names.update(layer_names(f"layers.{number}.", family.parts, family.layer.format(number)))
    return names


def layer_names(
    ours: str, parts: Dict[str, List[str]], theirs: str, norm: Tuple[str, str] = DENSE
) -> Names:
    """Names of a layer's parameters."""
    names: Names = {}
    for part, tensors in parts.items():
        names.update(array_names(ours + part, [theirs + name for name in tensors], norm))
    return names


def predictor_names(config: BackboneConfig) -> Names:
    """Names of the parameters of the predictor of masked tokens, in a Hugging Face directory."""
    if not HUGGINGFACE[config.layout].predictor:
        return {}
    dense, norm, bias = HUGGINGFACE[config.layout].predictor
    return {**array_names("dense", [dense]), **array_names("layer_norm", [norm]), "bias": [bias]}


def zoo_names(config: BackboneConfig) -> Names:
    """Names of an encoder's parameters in the ``.params`` files of GluonNLP 0.10's zoo.

    A parameter without a tensor is 0: the zoo's RoBERTa has no token types.
    """
    types = ["token_type_embed.0.weight"]
    names = {
        "embeddings.word.weight": ["word_embed.0.weight"],
        "embeddings.token_type.weight": types if ZOO[config.layout].token_types > 1 else [],
        "embeddings.position_weight": ["encoder.position_weight"],
        **array_names("embeddings.layer_norm", ["encoder.layer_norm"], NORM),
    }
    for number in range(config.num_layers):
        start = f"encoder.transformer_cells.{number}."
        names.update(layer_names(f"layers.{number}.", ZOO_LAYER, start, NORM))
    return names


def array_names(part: str, tensors: List[str], norm: Tuple[str, str] = DENSE) -> Names:
    """Names of the two arrays of a dense layer or a normalization."""
    names: Names = {}
    kinds = zip(NORM, norm) if part.endswith("norm") else zip(DENSE, DENSE)
    for kind, file_kind in kinds:
        names[f"{part}.{kind}"] = [f"{name}.{file_kind}" for name in tensors]
    return names
