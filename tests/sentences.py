"""Pairs to tokenize: the built-in corpus, and text that breaks tokenizers. No import of the
package."""

import json
import pathlib
import random

BUILTIN = pathlib.Path(__file__).parent.parent / "wqa" / "data" / "builtin"

#: Pieces of difficult text; pairs are drawn from them.
PIECES = [
    *("🙂", "👩‍👩‍👧‍👦", "🇨🇭", "👍🏽", "❤️", "e\u0301", "n\u0303o"),
    *("Z\u0351a\u0322l\u0321go\u0336", "İstanbul", "ﬁne", "ﷺ", "Ⅷ", "½", "①", "日本語"),
    *(
        "漢字かな交じり",
        "한국어",
        "中文字符",
        "русский",
        "ελληνικά",
        "Ωmega",
        "עברית",
        "العربية",
        "हिन्दी",
    ),
    *("ไทย", "ǅ", "\t", "\n", "\r\n", "\u00a0", "\u2003", "\u3000", "\u200b", "\u200d"),
    *("\ufeff", "\u00ad", "\u2028", "\x00", "\x07", "\x7f", "\ufffd", "\ue000", "\U0010ffff"),
    *("...", "…", "''", "``", '"', "“quoted”", "l'été", "don't", "can't've", "I'LL", "'s"),
    *("’s", "3,000", "1,2,3", "7,", "9,,", "3.14", "$5", "€", "10%", "50°C", "a/b", "x_y"),
    *("C++", "#tag", "@you", "http://a.b/c?d=e&f", "me@b.org", "[CLS]", "[SEP]", "[MASK]"),
    *("[UNK]", "[PAD]", "[X]", "<s>", "</s>", "<pad>", "<mask>", "<unk>", "<b>", "##ing"),
    *("▁low", "Ġword", "naïve", "Zürich", "ÀÉÎÕÜ", "straße", "STRASSE", "ŁÓDŹ", "œuvre"),
    *("Æon", "ø", "đ", "WHO", "iPhone", "the", "how", "glacier", "a" * 150, "b" * 99),
    *("supercalifragilisticexpialidocious", "-" * 40, "!?" * 10, "  ", "   two  spaces   "),
    *("", " ", "x"),
]


def pairs():
    """More than 2,000 pairs, always the same."""
    found = []
    for split in ("train", "dev", "test"):
        for line in (BUILTIN / f"{split}.jsonl").read_text(encoding="utf-8").splitlines():
            record = json.loads(line)
            found += [(record["question"], candidate["text"]) for candidate in record["candidates"]]
    draw = random.Random(0)
    for _ in range(900):
        texts = []
        for _ in range(2):
            texts.append(
                "who " + draw.choice(("", " ")).join(draw.choices(PIECES, k=draw.randint(1, 6)))
            )
        found.append(tuple(texts))
    words = [word for _, candidate in found[:300] for word in candidate.split()]
    found.append(("what is long ?", " ".join(draw.choices(words, k=2000))[:10_000]))
    found.append(("what is longer ?", "".join(draw.choices(PIECES + words, k=3000))[:10_000]))
    return found


def digest(token_ids):
    """Eight bytes that stand for a list of token ids."""
    import hashlib

    text = ",".join(str(int(number)) for number in token_ids)
    return int.from_bytes(
        hashlib.blake2b(text.encode(), digest_size=8).digest(), "little", signed=True
    )
