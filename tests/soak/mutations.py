"""Random damage: to bytes, to JSON, and to lines of text."""

import copy
import json

#: Values of a wrong type, size or kind.
ODD_VALUES = (
    None,
    True,
    False,
    0,
    -1,
    1,
    2,
    7,
    10**6,
    10**12,
    -(10**20),
    2**31,
    2**63,
    0.5,
    1e308,
    -0.0,
    float("nan"),
    float("inf"),
    "",
    "x",
    "0.3",
    "../../etc",
    "\u202e\x1b[31m",
    "a" * 5000,
    "\ud800",
    [],
    [[]],
    [None],
    [1, 2, 3],
    {},
    {"a": {}},
)

#: Pieces that readers of text may trip over.
PIECES = (
    "\t",
    " ",
    "\n",
    "\r",
    "\r\n",
    "\x00",
    "\x0b",
    "\x0c",
    "\x1c",
    "\x85",
    "\u2028",
    "\u202e",
    "\ufeff",
    "\ud7ff",
    "\U0001f600",
    '"',
    "\\",
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "<",
    ">",
    "0",
    "1",
    "-1",
    "1e999",
    "nan",
    "NaN",
    "null",
    "Infinity",
    "\\ud800",
    "\\u0000",
    "</QApairs>",
    "<QApairs id='9'>",
    "<question>",
    "é",
    "x" * 3000,
)


def damage_bytes(random, raw):
    """Damage bytes in one of the ways that disks, transfers and editors have.

    Parameters
    ----------
    random : random.Random
        Random numbers.
    raw : bytes
        The bytes, which may be empty.

    Returns
    -------
    bytes
        Other bytes, or by chance the same.
    """
    data = bytearray(raw)
    start = random.randrange(len(data) + 1)
    if random.random() < 0.5:  # most formats are read by their head or tail
        start = min(len(data), random.choice((start % 200, max(0, len(data) - start % 200))))
    length = random.choice((1, 2, 4, 8, 16, 64, 512, 4096))
    end = min(len(data), start + length)
    way = random.randrange(9)
    if way <= 1 and start < len(data):
        data[start] ^= 1 << random.randrange(8)
    elif way == 2 and start < len(data):
        data[start] = random.randrange(256)
    elif way == 3:
        del data[start:]
    elif way == 4:
        data[start:start] = bytes(random.randrange(256) for _ in range(length))
    elif way == 5:
        data[start:end] = bytes(end - start)
    elif way == 6:
        data[start:start] = data[start:end]
    elif way == 7:
        other = random.randrange(len(data) + 1)
        block = data[other : other + length]
        data[start : start + len(block)] = block
    else:
        del data[start:end]
    return bytes(data)


def damage_json(random, raw):
    """Change the structure of JSON: a value, a key, a type, the nesting.

    Parameters
    ----------
    random : random.Random
        Random numbers.
    raw : bytes
        JSON text.

    Returns
    -------
    bytes
        JSON text, perhaps with NaN or with half a surrogate pair.
    """
    value = copy.deepcopy(json.loads(raw))
    parents = []
    _collect(value, parents)
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        parent, key = random.choice(parents)
        _change(random, parent, key, parents)
    text = json.dumps(value)
    if random.random() < 0.1 and isinstance(value, dict) and value:
        twice = {random.choice(list(value)): random.choice(ODD_VALUES)}
        text = f"{text[:-1]}, {json.dumps(twice)[1:]}"
    if random.random() < 0.03:
        text = text.replace(": ", ": " + "[" * 100_000, 1)
    if random.random() < 0.03:
        text = "[" * 50_000 + text + "]" * 50_000
    return text.encode("utf-8", "surrogatepass")


def _collect(value, parents):
    keys = []
    if isinstance(value, dict):
        keys = list(value)
    elif isinstance(value, list):
        keys = list(range(len(value)))
    for key in keys:
        parents.append((value, key))
        _collect(value[key], parents)


def _change(random, parent, key, parents):
    """Change one entry of an object or a list, which an earlier change may have removed."""
    way = random.randrange(6)
    present = key in parent if isinstance(parent, dict) else key < len(parent)
    if not present:
        return
    if way == 0:
        del parent[key]
    elif way == 1 and isinstance(parent, dict):
        parent[random.choice(("extra", "", "\u202e", f"{key} ", str(key).upper()))] = 1
    elif way == 2:
        donor, name = random.choice(parents)
        if name in donor if isinstance(donor, dict) else name < len(donor):
            parent[key] = copy.deepcopy(donor[name])
    elif way == 3 and type(parent[key]) in (int, float):
        parent[key] = random.choice((-parent[key], parent[key] + 1, parent[key] * 1e6, 0))
    elif way == 4:
        parent[key] = [parent[key]]
    else:
        parent[key] = copy.deepcopy(random.choice(ODD_VALUES))


def damage_line(random, line):
    """Damage a line of text.

    Parameters
    ----------
    random : random.Random
        Random numbers.
    line : bytes
        UTF-8 text without a line end.

    Returns
    -------
    bytes
        Another line, perhaps several, perhaps not UTF-8.
    """
    if random.random() < 0.3:
        return damage_bytes(random, line)
    text = line.decode("utf-8")
    start = random.randrange(len(text) + 1)
    end = min(len(text), start + random.choice((0, 1, 1, 2, 5, 20)))
    piece = random.choice(PIECES)
    if random.random() < 0.2:
        piece *= random.choice((2, 3, 40))
    return (text[:start] + piece + text[end:]).encode("utf-8")
