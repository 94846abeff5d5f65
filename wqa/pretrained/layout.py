"""What papers' authors give out: files of tensors, and directories in Hugging Face's form."""

from __future__ import annotations

import pathlib
from typing import Any, Collection, Dict, Mapping, Tuple

from wqa.models import Network
from wqa.pretrained.names import Names


class DirectoryLayout:
    """Base class of the forms of authors' directories: Hugging Face's with a head of a system.

    Plain names of tensors are those without the family's prefix.
    """

    #: System whose network the directory holds, a key of `wqa.systems.SYSTEMS`.
    system = ""

    def recognizes(self, settings: Mapping[str, Any], tensors: Collection[str]) -> bool:
        """Whether a directory is of this form."""
        raise NotImplementedError

    def options(
        self,
        path: pathlib.Path,
        settings: Mapping[str, Any],
        shapes: Mapping[str, Tuple[int, ...]],
    ) -> Dict[str, Any]:
        """Read the configuration of the system."""
        raise NotImplementedError

    def max_length(self, network: Network) -> int:
        """Greatest length of an input that the run records; 0 for the default."""
        return 0

    def names(self, network: Network) -> Names:
        """Names of the tensors of what the network has beside its encoder."""
        raise NotImplementedError


class CheckpointLayout:
    """Base class of the forms of authors' checkpoints, one for each system that has such a file.

    A file's tensors have plain names, which `names` uses, by `plain_names`.
    """

    #: System whose network the file holds, a key of `wqa.systems.SYSTEMS`.
    system = ""
    #: Name that the authors gave the file.
    file_name = ""
    #: Family of the encoder, a key of `wqa.config.FAMILIES`. The authors' code has its names alone.
    family = ""
    #: Regular expression of the plain names of tensors that may be left over. All others belong to
    #: the network, so that one that its names lack is an error.
    ignored = r".*\.position_ids"

    def recognizes(self, tensors: Collection[str]) -> bool:
        """Whether a file is of this form."""
        raise NotImplementedError

    def plain_names(self, tensors: Collection[str]) -> Dict[str, str]:
        """Plain names of a file's tensors."""
        return {name: name for name in tensors}

    def options(self, path: pathlib.Path, tensors: Collection[str]) -> Dict[str, Any]:
        """Read the configuration of the system from the names of the tensors."""
        raise NotImplementedError

    def names(self, network: Network) -> Names:
        """Names of the tensors of a network."""
        raise NotImplementedError

    def copies(self, network: Network) -> Mapping[str, str]:
        """Tensors that repeat others."""
        return {}

    def further_copies(self, network: Network) -> Mapping[str, str]:
        """Tensors that may repeat others too; they are checked, but not written."""
        return {}
