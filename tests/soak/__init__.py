"""Attacks on the package that run for an hour: `make soak`, or ``python tests/soak/run.py``.

`soak.run` shares the time among the attacks, each in worker processes of its own, and prints the
table. An attack is a short file with one class, an `soak.attack.Attack`.
"""
