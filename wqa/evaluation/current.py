"""What uses a network while it trains, such as its ranker, for evaluations."""

from __future__ import annotations

from typing import Any, Callable, List


def built_of(build: Callable[[Any], Any], live: bool) -> Callable[[Any], Any]:
    """Build what uses a network, once or at each call."""
    built: List[Any] = []  # the last network and what uses it

    def current(network: Any) -> Any:
        if not (live and built and built[0] is network):
            built.clear()  # its copy of the parameters goes before another comes
            built.extend((network, build(network)))
        return built[1]

    return current
