"""Hides the package ``onednn-cpu-gomp`` from a process, where WQA_TESTS_HIDE_ONEDNN is set.

Python imports this module when it starts. `tests/conftest.py` puts this folder on PYTHONPATH, so
that the processes that tests start do not see the package either.
"""

import os

if os.environ.get("WQA_TESTS_HIDE_ONEDNN"):
    import importlib.metadata

    _from_name = importlib.metadata.Distribution.from_name

    def _without_onednn(name):
        if name == "onednn-cpu-gomp":
            raise importlib.metadata.PackageNotFoundError(name)
        return _from_name(name)

    importlib.metadata.Distribution.from_name = staticmethod(_without_onednn)
