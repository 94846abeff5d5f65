"""The first token ids of a long text, without tokenizing all of it."""

from __future__ import annotations

from typing import List

import tokenizers

#: Characters of the first start of a text that is tokenized, for each id that is needed.
CHARACTERS_A_TOKEN = 8
#: Characters before the end of a start whose tokens may depend on what follows.
MARGIN = 512
#: Most characters of a text that are read.
MOST_READ = 1 << 20


def first_ids(inner: tokenizers.Tokenizer, text: str, count: int) -> List[int]:
    """Tokenize the start of a text.

    Longer and longer starts are tokenized, until enough tokens end `MARGIN` characters before the
    end of one. They are those of the whole text, unless a word of more characters is divided by
    what follows it. Of a text whose first `MOST_READ` characters have fewer tokens, these are
    returned.
    """
    size = MARGIN + CHARACTERS_A_TOKEN * count
    while True:
        encoding = inner.encode(text[:size], add_special_tokens=False)
        certain = sum(end <= size - MARGIN for _, end in encoding.offsets)
        if certain >= count or size >= min(len(text), MOST_READ):
            return encoding.ids[:count]
        size = min(4 * size, MOST_READ)
