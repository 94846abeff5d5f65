#!/usr/bin/env python3
"""Make the files that the parity tests read, with PyTorch and transformers.

    python tests/make_expected.py models MINILM_DIR     # transformers of any recent version
    python tests/make_expected.py tokenizers MINILM_DIR # transformers 4.46, sentencepiece, protobuf
    python tests/make_expected.py decoupled             # transformers of any recent version

Run in an environment of its own; the tests need none of these libraries. `models` writes, under
tests/files/, a tiny classifier of every family with random weights as a Hugging Face directory with
what it computes, the same weights as PyTorch's own checkpoints, and hidden states of MiniLM.
`decoupled` writes the scores and gradients of DC-BERT on the tiny BERT encoder.
`tokenizers` trains small vocabularies on the built-in corpus and stores digests of the ids that
tests/sentences.py gets: by the reference's own Python tokenizers, and by the compiled ones that it
uses by default.
"""

import json
import pathlib
import shutil
import sys
import tempfile

import numpy as np

HERE = pathlib.Path(__file__).parent / "files"
SIZES = {"vocab_size": 64, "hidden_size": 16, "intermediate_size": 32}
SIZES.update({"num_hidden_layers": 3, "num_attention_heads": 2})
PAIRS = [
    (
        "how are glacier caves formed ?",
        "Meltwater that runs through or under a glacier carves its caves.",
    ),
    (
        "who wrote hamlet ?",
        "Hamlet, prince of Denmark, speaks to his father's ghost on the walls of Elsinore; "
        "the play is by William Shakespeare (about 1600).",
    ),
    (
        "what is naïve Bayes ?",
        "日本語 and emoji 🙂 are unknown to some vocabularies, Zürich is not.",
    ),
]
SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def gradients(model, token_ids, token_types, valid_length, weights):
    """Gradients of the weighted sum of the last layer's real positions, by parameter."""
    import reference

    mask = np.arange(token_ids.shape[1])[None] < valid_length[:, None]
    hidden = reference.run(model, token_ids, token_types, valid_length).hidden_states[-1]
    (hidden * torch.tensor(weights * mask[..., None])).sum().backward()
    encoder = getattr(model, model.base_model_prefix)
    parameters, layer = dict(encoder.named_parameters()), "encoder.layer.1."
    names = {
        "words": "embeddings.word_embeddings.weight",
        "positions": "embeddings.position_embeddings.weight",
        "ffn_1": layer + "intermediate.dense.weight",
        "norm": layer + "attention.output.LayerNorm.weight",
    }
    attention, parts = "attention.self.", ("query", "key", "value")
    kind = model.config.model_type
    if kind == "albert":
        layer, attention = "encoder.albert_layer_groups.0.albert_layers.0.", "attention."
        names.update(ffn_1=layer + "ffn.weight", norm=layer + "attention.LayerNorm.weight")
    if kind == "mpnet":
        attention, parts = "attention.attn.", ("q", "k", "v")
        names.update(
            norm=layer + "attention.LayerNorm.weight",
            relative="encoder.relative_attention_bias.weight",
        )
    if kind == "distilbert":
        layer, attention, parts = "transformer.layer.1.", "attention.", ("q_lin", "k_lin", "v_lin")
        names.update(ffn_1=layer + "ffn.lin1.weight", norm=layer + "sa_layer_norm.weight")
    qkv = [f"{layer}{attention}{part}.weight" for part in parts]
    found = {f"gradient_of_{key}": parameters[name].grad.numpy() for key, name in names.items()}
    found["gradient_of_qkv"] = np.concatenate([parameters[name].grad.numpy() for name in qkv])
    return found


def tiny(name, family, labels=2, kind="SequenceClassification", length=12, **options):
    """A tiny model's directory, with what it computes on texts up to a length."""
    import reference

    config = getattr(transformers, f"{family}Config")(
        num_labels=labels, **{"max_position_embeddings": 32, **SIZES, **options}
    )
    torch.manual_seed(0)
    model = getattr(transformers, f"{family}For{kind}")(config)
    rng = np.random.default_rng(0)
    # The default initialisation leaves biases 0 and norms 1, which would hide mistakes.
    with torch.no_grad():
        for parameter in model.parameters():
            noise = rng.normal(0, 0.1, tuple(parameter.shape))
            parameter.add_(torch.tensor(noise, dtype=torch.float32))
    shutil.rmtree(HERE / name, ignore_errors=True)
    model.save_pretrained(HERE / name)
    lengths = np.array([9, 5, length])
    token_ids = rng.integers(5, SIZES["vocab_size"], (3, length))
    token_ids[np.arange(length)[None] >= lengths[:, None]] = model.config.pad_token_id
    token_ids[0, 5] = model.config.pad_token_id  # text may hold it; RoBERTa's positions then wait
    token_types = np.zeros_like(token_ids)
    if getattr(model.config, "type_vocab_size", 1) > 1:
        token_types[:, 4:] = 1
    weights = rng.normal(size=(3, length, SIZES["hidden_size"])).astype(np.float32)
    if kind == "QuestionAnswering":
        with torch.no_grad():
            out = reference.run(model, token_ids, token_types, lengths)
        stored = {"starts": out.start_logits.numpy(), "ends": out.end_logits.numpy()}
    else:
        stored = {"weights": weights, **reference.outputs(model, token_ids, token_types, lengths)}
        stored.update(gradients(model, token_ids, token_types, lengths, weights))
    stored.update(token_ids=token_ids, token_types=token_types, valid_length=lengths)
    np.savez_compressed(HERE / name / "expected.npz", **stored)
    return model


def checkpoints(model):
    """One model's tensors in the formats that PyTorch has written over the years."""
    folder = HERE / "pickled"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    tensors = model.state_dict()
    torch.save(tensors, folder / "zip.bin")
    torch.save(tensors, folder / "legacy.bin", _use_new_zipfile_serialization=False)
    bfloat16 = {name: tensor.to(torch.bfloat16) for name, tensor in tensors.items()}
    torch.save(bfloat16, folder / "bfloat16.bin")
    half = {}
    for name, tensor in tensors.items():
        stored = tensor.half().t().contiguous().t() if tensor.dim() == 2 else tensor.half()
        half[name] = torch.nn.Parameter(stored)
    torch.save(half, folder / "half_transposed.bin")
    whole = torch.arange(12.0)
    views = {"a": whole[2:8].view(2, 3), "b": whole[::2], "n": torch.tensor(3)}
    torch.save({**views, "e": torch.zeros(0, 4), "t": "text"}, folder / "views.bin")
    torch.save(torch.nn.Linear(2, 2), folder / "module.bin")


def minilm(directory):
    import reference

    tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
    batch = tokenizer(
        [q for q, _ in PAIRS], [c for _, c in PAIRS], padding=True, return_tensors="np"
    )
    lengths = batch["attention_mask"].sum(1)
    model = transformers.BertModel.from_pretrained(directory)
    found = reference.outputs(model, batch["input_ids"], batch["token_type_ids"], lengths)["states"]
    # Every fourth unit is enough to tell, and keeps the file small.
    np.savez_compressed(
        HERE / "minilm_expected.npz",
        token_ids=batch["input_ids"],
        token_types=batch["token_type_ids"],
        valid_length=lengths,
        states=found[..., ::4],
        questions=[q for q, _ in PAIRS],
        candidates=[c for _, c in PAIRS],
    )
    # Mean over the real positions, as its own package pools, of 200 sentences.
    from sentences import pairs

    texts, pooled = [candidate for _, candidate in pairs()[:1000:5]], []
    for text in texts:
        batch = tokenizer([text], truncation=True, max_length=128, return_tensors="pt")
        with torch.no_grad():
            pooled.append(model.eval()(**batch).last_hidden_state[0].mean(0).numpy())
    np.savez_compressed(HERE / "minilm_pooled.npz", pooled=np.stack(pooled).astype(np.float32))


def answers():
    """Figures of random answers by the port of SQuAD's script in transformers."""
    import random

    from transformers.data.metrics import squad_metrics

    rng = random.Random(0)
    words = ["the", "The", "a", "An", "B", "b.", "c-d", "Z\u00fcrich", "U.S.", "\u201cx\u201d"]
    words += ["the-end", "1,000", "\u00a0", "_", "a_b", "don't", "\u00e9", "\u2013"]
    rows = []
    for _ in range(150):
        texts = [" ".join(rng.choices(words, k=rng.randrange(5))) for _ in range(2)]
        prediction, answer = texts
        exact = squad_metrics.compute_exact(answer, prediction)
        rows.append([prediction, answer, exact, squad_metrics.compute_f1(answer, prediction)])
    text = ",\n".join(json.dumps(row) for row in rows)
    (HERE / "squad_answers.json").write_text(f"[{text}]\n", encoding="utf-8")


def models(directory):
    answers()
    bert = tiny("tiny_bert", "Bert")
    tiny("tiny_bert_reader", "Bert", kind="QuestionAnswering")
    roberta = {"max_position_embeddings": 34, "layer_norm_eps": 1e-5, "pad_token_id": 1}
    tiny("tiny_roberta", "Roberta", type_vocab_size=1, **roberta)
    tiny("tiny_xlm_roberta", "XLMRoberta", labels=1, type_vocab_size=1, **roberta)
    # Long enough for distances in every bucket.
    roberta["max_position_embeddings"] = 172
    tiny("tiny_mpnet", "MPNet", length=150, **roberta)
    sizes = {"dim": 16, "hidden_dim": 32, "n_layers": 3, "n_heads": 2}
    tiny("tiny_distilbert", "DistilBert", **sizes)
    tiny("tiny_electra", "Electra", labels=1, embedding_size=16)
    tiny("tiny_electra_small", "Electra", embedding_size=8)
    tiny("tiny_albert_v1", "Albert", embedding_size=8, hidden_act="gelu")
    tiny("tiny_albert_v2", "Albert", embedding_size=8, hidden_act="gelu_new")
    checkpoints(bert)
    minilm(directory)


#: Factors of the encoder's weights in the parts of DC-BERT, so that all parts differ.
SCALES = {"question": 0.9, "document": 1.0, "interaction": 1.05}
#: Positions of a question; those of a document follow.
QUESTION_LENGTH = 10


def scaled(module, part):
    """A copy of a module whose parameters are multiplied by the factor of a part."""
    import copy

    module = copy.deepcopy(module).eval()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.mul_(SCALES[part])
    return module


def padded_ids(rng, lengths, width):
    ids = rng.integers(5, SIZES["vocab_size"], (len(lengths), width))
    mask = np.arange(width)[None] < lengths[:, None]
    ids[~mask] = 0
    return torch.tensor(ids), torch.tensor(mask)


def decoupled():
    """Scores of DC-BERT as public code computes them: every question padded to one length."""
    bert = transformers.BertModel.from_pretrained(HERE / "tiny_bert", attn_implementation="eager")
    rng = np.random.default_rng(3)
    questions = padded_ids(rng, np.array([10, 4, 7, 3]), QUESTION_LENGTH)
    documents = padded_ids(rng, np.array([18, 22, 5, 9]), 22)
    stored = {
        "question_ids": questions[0].numpy(),
        "question_valid": questions[1].sum(1).numpy(),
        "document_ids": documents[0].numpy(),
        "document_valid": documents[1].sum(1).numpy(),
    }
    units = SIZES["hidden_size"]
    shapes = {"dense": (units, 2 * units), "dense_bias": (units,), "out": (1, units)}
    for name, shape in shapes.items():
        stored[name] = rng.normal(0, 0.5, shape).astype(np.float32)
    weights = {name: torch.tensor(stored[name]) for name in shapes}
    mask = torch.cat([questions[1], documents[1]], 1)
    mask = (1 - mask[:, None, None].float()) * torch.finfo(torch.float32).min
    for count in (1, 2):
        encoders = [scaled(bert, "question"), scaled(bert, "document")]
        layers = [scaled(layer, "interaction") for layer in bert.encoder.layer[-count:]]
        tables = [
            bert.embeddings.position_embeddings.weight.detach().clone().requires_grad_(),
            bert.embeddings.token_type_embeddings.weight.detach().clone().requires_grad_(),
        ]
        encoded = [
            encoder(ids, attention_mask=real).last_hidden_state
            for encoder, (ids, real) in zip(encoders, (questions, documents))
        ]
        hidden = torch.cat(encoded, 1)
        types = torch.tensor([0] * QUESTION_LENGTH + [1] * documents[0].shape[1])
        hidden = hidden + tables[0][: hidden.shape[1]] + tables[1][types]
        for layer in layers:
            hidden = layer(hidden, mask)[0]
        first = torch.cat([hidden[:, 0], hidden[:, QUESTION_LENGTH]], 1)
        dense = torch.tanh(first @ weights["dense"].T + weights["dense_bias"])
        scores = (dense @ weights["out"].T)[:, 0]
        (scores * torch.arange(1.0, 5.0)).sum().backward()
        wanted = {
            "scores": scores.detach(),
            "positions": tables[0].grad,
            "types": tables[1].grad,
            "question_words": encoders[0].embeddings.word_embeddings.weight.grad,
            "document_words": encoders[1].embeddings.word_embeddings.weight.grad,
            "ffn_1": layers[0].intermediate.dense.weight.grad,
        }
        for name, tensor in wanted.items():
            stored[f"{name}_{count}"] = tensor.numpy()
    np.savez_compressed(HERE / "dcbert_expected.npz", **stored)


def vocabularies():
    """Small vocabularies, of the built-in corpus and single characters of the difficult text."""
    import sentencepiece
    import tokenizers
    from sentences import PIECES, pairs

    texts = [text for pair in pairs()[:1200] for text in pair] + [
        piece for piece in PIECES if "\n" not in piece
    ]
    folder = HERE / "tokenizers"
    shutil.rmtree(folder, ignore_errors=True)
    for name, lowercase in (("uncased", True), ("cased", False)):
        trained = tokenizers.BertWordPieceTokenizer(lowercase=lowercase)
        trained.train_from_iterator(texts, vocab_size=1200, special_tokens=SPECIALS)
        (folder / name).mkdir(parents=True)
        trained.save_model(str(folder / name))
        (folder / name / "tokenizer_config.json").write_text(
            json.dumps({"do_lower_case": lowercase}) + "\n"
        )
    trained = tokenizers.ByteLevelBPETokenizer()
    trained.train_from_iterator(
        texts, vocab_size=1200, special_tokens=["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    )
    (folder / "byte_level").mkdir()
    trained.save_model(str(folder / "byte_level"))
    (folder / "sentencepiece").mkdir()
    with tempfile.TemporaryDirectory() as scratch:
        sentencepiece.SentencePieceTrainer.Train(
            sentence_iterator=iter(text.lower() for text in texts),
            model_prefix=f"{scratch}/spiece",
            vocab_size=1200,
            pad_id=0,
            unk_id=1,
            bos_id=-1,
            eos_id=-1,
            pad_piece="<pad>",
            control_symbols="[CLS],[SEP],[MASK]",
            character_coverage=0.9995,
            hard_vocab_limit=False,
            minloglevel=2,
        )
        shutil.copy(f"{scratch}/spiece.model", folder / "sentencepiece")
    return folder


def token_ids(minilm):
    """Digests of the reference's ids."""
    import transformers
    from sentences import digest, pairs

    folder, found = vocabularies(), pairs()
    for name, family, source in (
        ("uncased", "Bert", None),
        ("cased", "Bert", None),
        ("byte_level", "Roberta", None),
        ("sentencepiece", "Albert", None),
        ("minilm", "Bert", minilm),
    ):
        (folder / name).mkdir(exist_ok=True)
        slow = getattr(transformers, f"{family}Tokenizer").from_pretrained(source or folder / name)
        fast = getattr(transformers, f"{family}TokenizerFast").from_pretrained(
            source or folder / name
        )
        if name == "sentencepiece":  # the package reads what the library saves
            fast.backend_tokenizer.save(str(folder / name / "tokenizer.json"))
            (folder / name / "spiece.model").unlink()
        ids = [[tokenizer(*pair)["input_ids"] for pair in found] for tokenizer in (slow, fast)]
        differ = [number for number, (one, other) in enumerate(zip(*ids)) if one != other]
        unknown = sum(row.count(fast.unk_token_id) for row in ids[1]) / sum(map(len, ids[1]))
        print(
            f"{name}: {len(found)} pairs, {len(differ)} differ between the reference's two, "
            f"{100 * unknown:.1f} % unknown"
        )
        digests = {
            kind: np.array([digest(row) for row in rows])
            for kind, rows in zip(("python", "compiled"), ids)
        }
        np.savez_compressed(
            folder / name / "expected.npz",
            python_sorted=np.array([digest(sorted(row)) for row in ids[0]]),
            **digests,
        )


if __name__ == "__main__":
    if sys.argv[1] == "tokenizers":
        token_ids(sys.argv[2])
    else:
        import torch
        import transformers

        if sys.argv[1] == "decoupled":
            decoupled()
        else:
            models(sys.argv[2])
