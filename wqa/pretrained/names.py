"""What the encoders' files call each parameter of a backbone and of a classifier on the first
position.

A name of ours stands for one tensor of theirs, or for several that are joined along the first axis
(query, key and value). Hugging Face's names are given without the family's prefix.
"""

from __future__ import annotations

from typing import Dict, Iterator, List, Tuple

from wqa.config import BackboneConfig

#: Parameter of ours -> tensors of theirs.
Names = Dict[str, List[str]]


def huggingface_names(config: BackboneConfig) -> Names:
    """Names in a Hugging Face directory.

    Parameters
    ----------
    config : BackboneConfig

    Returns
    -------
    dict of str to list of str
    """
    names = {
        "embeddings.word.weight": ["embeddings.word_embeddings.weight"],
        "embeddings.token_type.weight": ["embeddings.token_type_embeddings.weight"],
        "embeddings.position_weight": ["embeddings.position_embeddings.weight"],
    }
    names.update(_pairs("embeddings.layer_norm", "embeddings.LayerNorm", is_norm=True))
    if config.embedding_size:
        theirs = (
            "encoder.embedding_hidden_mapping_in"
            if config.layout == "albert"
            else "embeddings_project"
        )
        names.update(_pairs("embeddings.projection", theirs))
    if config.layout == "albert":
        names.update(
            _layer("layers.0", "encoder.albert_layer_groups.0.albert_layers.0.", ALBERT_LAYER)
        )
    else:
        for number in range(config.num_layers):
            names.update(_layer(f"layers.{number}", f"encoder.layer.{number}.", BERT_LAYER))
    return names


def zoo_names(config: BackboneConfig) -> Names:
    """Names in the ``.params`` files of GluonNLP 0.10's model zoo.

    RoBERTa's have no token types; its parameter of ours then has no tensor, and is 0.

    Parameters
    ----------
    config : BackboneConfig

    Returns
    -------
    dict of str to list of str
    """
    names = {
        "embeddings.word.weight": ["word_embed.0.weight"],
        "embeddings.token_type.weight": []
        if config.layout == "roberta"
        else ["token_type_embed.0.weight"],
        "embeddings.position_weight": ["encoder.position_weight"],
    }
    names.update(
        {
            f"embeddings.layer_norm.{kind}": [f"encoder.layer_norm.{kind}"]
            for kind in ("gamma", "beta")
        }
    )
    for number in range(config.num_layers):
        names.update(
            _layer(
                f"layers.{number}",
                f"encoder.transformer_cells.{number}.",
                ZOO_LAYER,
                ("gamma", "beta"),
            )
        )
    return names


#: Parts of a layer: ours, then theirs.
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

#: Hugging Face's classifiers on the first position: our dense and output layers -> theirs. BERT and
#: ALBERT have the dense layer in the encoder, as its pooler.
CLASSIFIERS = {
    "bert": {"dense": "pooler.dense", "out": "classifier"},
    "albert": {"dense": "pooler", "out": "classifier"},
    "roberta": {"dense": "classifier.dense", "out": "classifier.out_proj"},
    "electra": {"dense": "classifier.dense", "out": "classifier.out_proj"},
}


def _layer(
    ours: str, prefix: str, parts: Dict[str, List[str]], norm: Tuple[str, str] = ("weight", "bias")
) -> Names:
    names: Names = {}
    for part, theirs in parts.items():
        is_norm = part.endswith("norm")
        for our_kind, their_kind in zip(
            ("gamma", "beta") if is_norm else ("weight", "bias"),
            norm if is_norm else ("weight", "bias"),
        ):
            names[f"{ours}.{part}.{our_kind}"] = [f"{prefix}{name}.{their_kind}" for name in theirs]
    return names


def _pairs(ours: str, theirs: str, is_norm: bool = False) -> Iterator[Tuple[str, List[str]]]:
    for our_kind, their_kind in zip(
        ("gamma", "beta") if is_norm else ("weight", "bias"), ("weight", "bias")
    ):
        yield f"{ours}.{our_kind}", [f"{theirs}.{their_kind}"]
