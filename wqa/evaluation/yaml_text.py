"""YAML: options of a training, claims about tables, headers of runs."""

from __future__ import annotations

from typing import Any, Set

from wqa.errors import MissingDependency, how_to_install, shorten


def parse_yaml(text: str) -> Any:
    """Parse a YAML document.

    Parameters
    ----------
    text : str
        The document, without aliases, in which no key occurs twice.

    Returns
    -------
    dict, list, str, int, float, bool or None
        Value of the document.

    Raises
    ------
    ValueError
        If the text is no such document.
    MissingDependency
        If PyYAML is not installed.
    """
    try:
        import yaml
    except ImportError:
        raise _no_yaml() from None

    class Loader(yaml.SafeLoader):
        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.AliasEvent):  # a few of them can stand for billions of values
                raise ValueError(f"alias {shorten('*' + self.peek_event().anchor)}")
            return super().compose_node(parent, index)

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            names: Set[Any] = set()
            for key, _ in node.value:
                name = self.construct_object(key, deep=True)
                if name in names:
                    raise ValueError(f"key {shorten(name)} occurs twice")
                names.add(name)
            return super().construct_mapping(node, deep)

    try:
        return yaml.load(text, Loader)
    except (yaml.YAMLError, RecursionError, TypeError) as error:
        raise ValueError(str(error)) from None


def yaml_of(value: Any) -> str:
    """A value as a YAML document, its keys in their order, which `parse_yaml` reads back.

    Parameters
    ----------
    value : dict, list, str, int, float, bool or None
        The value.

    Returns
    -------
    str
        The document, in ASCII.

    Raises
    ------
    MissingDependency
        If PyYAML is not installed.
    """
    try:
        import yaml
    except ImportError:
        raise _no_yaml() from None
    return yaml.safe_dump(value, sort_keys=False, width=1 << 20)


def _no_yaml() -> MissingDependency:
    mend = how_to_install("cpu")
    return MissingDependency("PyYAML", "is not installed", "the reader of YAML", mend)
