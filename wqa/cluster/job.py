"""A job, whose data are divided into partitions, and a runner, which computes them.

`wqa.cluster` runs any job. A job says what its partitions are, what the file of one holds, and how
all of them are merged. A partition depends on the manifest alone, so that it may be computed twice,
anywhere: the second file replaces the first and holds the same results.
"""

from __future__ import annotations

import abc
import dataclasses
import logging
import pathlib
import time
from typing import (
    Any,
    ClassVar,
    Dict,
    Iterable,
    Iterator,
    List,
    NamedTuple,
    NoReturn,
    Optional,
    Tuple,
)

from wqa.cluster.partition_files import (
    Content,
    Layout,
    Manifest,
    PartitionFiles,
    check_manifest,
    partitions_folder,
    read_manifest,
    write_manifest,
)
from wqa.config.environment import processor
from wqa.data.partitions import PARTITION_TOKENS, Partition, PartitionReader
from wqa.errors import DataError, OutputLocked, printable
from wqa.io.locks import lock_output
from wqa.systems.scores import check_partition_tokens

LOGGER = logging.getLogger(__name__)

#: Seconds between two looks at a manifest that another process writes.
PAUSE = 0.5


class Wording(NamedTuple):
    """Words of a job, for messages."""

    verb: str
    gerund: str
    participle: str
    unit: str
    results: str


@dataclasses.dataclass(frozen=True)
class Job(abc.ABC):
    """What a process needs to know that computes partitions.

    Parameters
    ----------
    run : str
        Run that computes the partitions.
    data : str
        File that is divided.
    out : str
        Folder to make of the results. The partitions lie in ``OUT.partitions`` until they are
        merged.
    partition_tokens : int
        Most estimated tokens of a partition.
    options : dict
        Options of the engine, and further ones of the run, in values of JSON.

    Attributes
    ----------
    wording : Wording
        Words for messages.
    layout : Layout
        What the file of a partition holds.
    optional_settings : tuple of str
        Settings that are absent where they have their default.

    Raises
    ------
    OptionError
        If a value is out of range.
    """

    run: str
    data: str
    out: str
    partition_tokens: int = PARTITION_TOKENS
    options: Dict[str, Any] = dataclasses.field(default_factory=dict)

    wording: ClassVar[Wording]
    layout: ClassVar[Layout]
    optional_settings: ClassVar[Tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        check_partition_tokens(self.partition_tokens)

    @property
    def folder(self) -> pathlib.Path:
        """Folder of the manifest and the partitions."""
        return partitions_folder(pathlib.Path(self.out))

    @property
    def paths(self) -> List[str]:
        """Files and folders that every process sees."""
        return [self.run, self.data, self.out]

    def files(self, manifest: Manifest) -> PartitionFiles:
        """Files of the partitions of a manifest.

        Parameters
        ----------
        manifest : Manifest
            The manifest of this job.

        Returns
        -------
        PartitionFiles
        """
        return PartitionFiles(self.folder, manifest, self.layout)

    @abc.abstractmethod
    def settings(self) -> Dict[str, Any]:
        """What the results depend on, as far as it is known without loading the run.

        Returns
        -------
        dict of str to Any
            Digests and options, in values of JSON.

        Raises
        ------
        WqaError
            If the run or the data cannot be read.
        """

    @abc.abstractmethod
    def load(self) -> PartitionRunner:
        """Load the run, to compute partitions in this process.

        Returns
        -------
        PartitionRunner

        Raises
        ------
        WqaError
            If the run or the data cannot be read.
        """

    @abc.abstractmethod
    def finished(self, made_with: Dict[str, Any]) -> Optional[Dict[str, Any]]:
        """What `merge` returned; None where the results are not there yet.

        Parameters
        ----------
        made_with : dict
            Settings that the results depend on, all or those of `settings`.

        Returns
        -------
        dict of str to Any or None

        Raises
        ------
        WqaError
            If ``out`` holds other results or other files.
        """

    @abc.abstractmethod
    def unpack(self, content: Content, partition: Partition) -> Any:
        """Take the results of a partition from the content of its file.

        Parameters
        ----------
        content : Content
            What `PartitionRunner.content` returned.
        partition : Partition
            The partition.

        Returns
        -------
        Any
            The results, for `merge`.

        Raises
        ------
        ValueError
            If they are not those of the partition; the message says why.
        """

    @abc.abstractmethod
    def merge(self, manifest: Manifest, parts: Iterable[Any]) -> Dict[str, Any]:
        """Write the results, holding the lock of ``out``. Results that are there are kept.

        Parameters
        ----------
        manifest : Manifest
            The manifest.
        parts : iterable
            Results of all partitions in order, as `unpack` returns them.

        Returns
        -------
        dict of str to Any
            Figures of the results, in values of JSON.

        Raises
        ------
        DataError
            If a partition is missing or damaged, or ``out`` holds other results.
        OutputLocked
            If another process writes them.
        StorageError
            If the results cannot be written.
        """


class PartitionRunner(abc.ABC):
    """Computes partitions of a job in this process. It is a context manager.

    Parameters
    ----------
    job : Job
        The job.
    made_with : dict
        Settings that the results depend on.
    computed_by : dict
        Settings that their last bits depend on.
    reader : PartitionReader
        Reader of the data, which the end of the block closes.

    Attributes
    ----------
    job, made_with, computed_by, reader
        As given.
    """

    def __init__(
        self,
        job: Job,
        made_with: Dict[str, Any],
        computed_by: Dict[str, Any],
        reader: PartitionReader,
    ) -> None:
        self.job, self.made_with, self.computed_by = job, made_with, computed_by
        self.reader = reader
        self._facts = {"instruction_sets": _instruction_sets()}

    def __enter__(self) -> PartitionRunner:
        return self

    def __exit__(self, *exception: Any) -> None:
        self.reader.__exit__()

    @abc.abstractmethod
    def divide(self) -> Iterator[Partition]:
        """Divide the data. What cannot be read or computed is an error now, not hours later.

        Yields
        ------
        Partition
            All partitions in order.

        Raises
        ------
        WqaError
            If a record cannot be read or computed.
        """

    @abc.abstractmethod
    def content(self, partition: Partition) -> Content:
        """Compute a partition.

        Parameters
        ----------
        partition : Partition
            The partition.

        Returns
        -------
        Content
            What its file is to hold: the same wherever it is computed.

        Raises
        ------
        DataError
            If the data are not those of the manifest any more.
        WqaError
            If a record cannot be read or computed.
        """

    def refuse(self, partition: Partition, counted: str, expected: str) -> NoReturn:
        """Refuse data that are not those of the manifest any more.

        Parameters
        ----------
        partition : Partition
            The partition.
        counted, expected : str
            What was read, and what the manifest says.

        Raises
        ------
        DataError
        """
        raise DataError(
            f"{self.job.data}, from line {partition.line}",
            counted,
            f"{expected}, as when the manifest was written",
            f"restore the file, or delete {self.job.folder}",
        )

    def open_manifest(self) -> Optional[Manifest]:
        """Read the manifest and check it, or write it if nobody has.

        The data are read once by whoever writes it; others wait meanwhile.

        Returns
        -------
        Manifest or None
            None where the results are merged meanwhile.

        Raises
        ------
        DataError
            If there is a manifest of another run, other data or other options, or it is damaged.
        WqaError
            If a record cannot be read or computed, or the manifest cannot be written.
        """
        folder = self.job.folder
        waits = False
        while True:
            manifest = read_manifest(folder)
            if manifest is not None:
                expected = {**self.made_with, **self.computed_by}
                check_manifest(manifest, folder, expected, self.job.optional_settings)
                return manifest
            try:
                with lock_output(folder):
                    if read_manifest(folder) is None:
                        if self.job.finished(self.made_with) is not None:
                            return None
                        partitions = list(self.divide())
                        write_manifest(folder, self.made_with, self.computed_by, partitions)
            except OutputLocked as locked:
                if not waits:
                    LOGGER.info(printable(f"waiting for the manifest: {locked.found}"))
                waits = True
                time.sleep(PAUSE)

    def compute(self, manifest: Manifest, index: int) -> None:
        """Compute a partition and write its file.

        Parameters
        ----------
        manifest : Manifest
            The manifest.
        index : int
            Index of the partition.

        Raises
        ------
        WqaError
            As `content` raises it, or if the file cannot be written.
        """
        start, cpu_start = time.perf_counter(), time.process_time()
        content = self.content(manifest.partitions[index])
        facts = {
            "seconds": round(time.perf_counter() - start, 4),
            "cpu_seconds": round(time.process_time() - cpu_start, 4),
            **self._facts,
        }
        self.job.files(manifest).write(index, content, facts)


def _instruction_sets() -> str:
    """Instruction sets of this processor, as far as the bits of results may depend on them."""
    described = processor()
    limits = [f"{name}={value}" for name, value in described["caps"].items()]
    return " ".join([described["machine"], *described["instruction_sets"], *limits])
