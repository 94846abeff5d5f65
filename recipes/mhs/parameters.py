#!/usr/bin/env python3
"""Count the parameters of Table 4's configurations (Matsubara et al. 2022), without weights.

python recipes/mhs/parameters.py RESULTS.tsv
"""

import math
import sys

from wqa.config import BACKBONES
from wqa.evaluation.report import write_rows
from wqa.systems.mhs.network import MHSConfig, MultipleHeadsStudent

#: Layers of the body and of a head.
CONFIGURATIONS = ((11, 1), (10, 2), (8, 4), (6, 6))
HEADS = 3


def main(table):
    """Write the table."""
    rows = []
    for body, layers in CONFIGURATIONS:
        config = MHSConfig((), body, HEADS, layers)
        network = MultipleHeadsStudent(BACKBONES["electra_12_768_12"], config)
        parameters = network.collect_params().values()
        count = sum(math.prod(parameter.shape) for parameter in parameters)
        name = f"MHS B{body}_{HEADS}H{layers}"
        rows.append({"row": name, "drop_ratio": "0", "params": f"{count:,}"})
    write_rows(table, rows)


if __name__ == "__main__":
    main(*sys.argv[1:])
