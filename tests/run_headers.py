"""Reading of the header of a TREC run."""

import yaml

from wqa.evaluation.run_metadata import split_header


def read_metadata(path):
    """What ``--run-metadata`` wrote at the start of a run."""
    header, _ = split_header(path)
    return yaml.safe_load("\n".join(line[2:] for line in header)) or {}
