#!/usr/bin/env python3
"""Write the name of the row with the greatest figure among some of a table; of ties, the first.

python recipes/cosinet/choose.py TABLE.tsv COLUMN CHOSEN.txt ROW...
"""

import sys

from wqa.errors import DataError, run_script
from wqa.evaluation.report import read_rows
from wqa.io.files import atomic_writer


def main(table, column, out, *names):
    """Write the name of the row."""
    rows = [row for row in read_rows(table, ("row", column)) if row["row"] in names]
    if not rows:
        raise DataError(table, f"none of the rows {' '.join(names)}", "a row of those names")
    best = max(rows, key=lambda row: float(row[column].split()[0]))
    with atomic_writer(out) as file:
        file.write(best["row"] + "\n")
    print(f"{best['row']}: {column} {best[column]}")


if __name__ == "__main__":
    run_script(main, *sys.argv[1:])
