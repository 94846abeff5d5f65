"""Random damage to bytes and to JSON."""

import json

#: JSON of a wrong type, size or kind.
ODD_VALUES = tuple(
    json.loads(
        r"""[null, true, false, 0, -1, 1, 7, 1000000, -100000000000000000000, 9223372036854775808,
        0.5, 1e308, -0.0, NaN, Infinity, "", "x", "0.3", "../../etc", "\u202e\u001b[31m", "\ud800",
        [], [[]], [null], [1, 2, 3], {}, {"a": {}}]"""
    )
)


def damage_bytes(random, raw):
    """Damage bytes in one of the ways that disks, transfers and editors have."""
    data = bytearray(raw)
    start = random.randrange(len(data) + 1)
    if random.random() < 0.5:  # most formats are read by their head or tail
        start = min(len(data), random.choice((start % 200, max(0, len(data) - start % 200))))
    length = random.choice((1, 2, 4, 8, 16, 64, 512, 4096))
    end = min(len(data), start + length)
    way = random.choice(("flip", "flip", "cut", "insert", "zero", "double", "delete"))
    if way == "flip" and start < len(data):
        data[start] ^= 1 << random.randrange(8)
    elif way == "cut":
        del data[start:]
    elif way == "insert":
        data[start:start] = bytes(random.randrange(256) for _ in range(length))
    elif way == "zero":
        data[start:end] = bytes(end - start)
    elif way == "double":
        data[start:start] = data[start:end]
    elif way == "delete":
        del data[start:end]
    return bytes(data)


def damage_json(random, raw):
    """Change the structure of JSON: a value, a key, a type, the nesting; also by a key twice."""
    value = json.loads(raw)
    places = []
    _collect(value, places)
    parent, key = random.choice(places)
    way = random.randrange(4)
    if way == 0:
        del parent[key]
    elif way == 1 and isinstance(parent, dict):
        parent[random.choice(("extra", "", f"{key} ", key.upper()))] = 1
    elif way == 2:
        parent[key] = [parent[key]]
    else:
        parent[key] = random.choice(ODD_VALUES)
    text = json.dumps(value)
    if random.random() < 0.1 and isinstance(value, dict) and value:
        twice = {random.choice(list(value)): random.choice(ODD_VALUES)}
        text = f"{text[:-1]}, {json.dumps(twice)[1:]}"
    if random.random() < 0.03:
        text = "[" * 50_000 + text + "]" * 50_000
    return text.encode("utf-8", "surrogatepass")


def _collect(value, places):
    """List every entry of nested objects and lists, as its parent and its key."""
    keys = []
    if isinstance(value, dict):
        keys = list(value)
    elif isinstance(value, list):
        keys = list(range(len(value)))
    for key in keys:
        places.append((value, key))
        _collect(value[key], places)
