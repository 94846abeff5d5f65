"""Rankers as parts of other libraries, in process: one file a library.

Each file imports its library, which an extra of the package installs: `wqa.adapters.pyterrier`,
`wqa.adapters.langchain`, `wqa.adapters.llamaindex`. This package imports none of them.
"""
