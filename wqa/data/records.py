"""The two records that every corpus becomes."""

from __future__ import annotations

from typing import NamedTuple, Optional, Tuple


class Candidate(NamedTuple):
    """A sentence that may answer a question; ``label`` is 1, 0, or None where it is not known."""

    text: str
    label: Optional[int] = None


class Question(NamedTuple):
    """A question with its candidates, in the order in which they were retrieved."""

    id: str
    question: str
    candidates: Tuple[Candidate, ...]

    @property
    def labels(self) -> Tuple[Optional[int], ...]:
        """Labels in candidate order."""
        return tuple(candidate.label for candidate in self.candidates)

    @property
    def texts(self) -> Tuple[str, ...]:
        """Sentences in candidate order."""
        return tuple(candidate.text for candidate in self.candidates)
