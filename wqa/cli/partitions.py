"""Options of subcommands whose work is divided into partitions, and its runs."""

from __future__ import annotations

import argparse
import shlex
from typing import TYPE_CHECKING, Any, Dict

if TYPE_CHECKING:
    from wqa.cluster import Job, JobReport


def add_partitions(
    parser: argparse.ArgumentParser, verb: str, participle: str, unit: str, tokens: int
) -> None:
    """Add ``--shard``, ``--cluster``, ``--merge`` and ``--partition-tokens``."""
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--shard", metavar="I/N", help=f"{verb} the I-th of N shares of the partitions, I from 1"
    )
    where.add_argument(
        "--cluster",
        metavar="ADDRESS",
        help=f"{verb} on Ray: local, local:N for N workers on this machine, ray://HOST[:PORT]; "
        "--threads are those of a worker (default: 1)",
    )
    where.add_argument(
        "--merge", action="store_true", help=f"{verb} nothing; merge what shards have {participle}"
    )
    parser.add_argument(
        "--partition-tokens",
        type=int,
        metavar="N",
        help=f"estimated tokens of the {unit} that are {participle} together (default: {tokens})",
    )


def divides(options: argparse.Namespace) -> bool:
    """Whether a command has an option that divides its work."""
    return options.shard is not None or options.cluster is not None or options.merge


def run_job(options: argparse.Namespace, job: Job) -> JobReport:
    """Run a job as the options of `add_partitions` say, with a bar on standard error."""
    from wqa.cluster import merge_shards, parse_shard, run_on_cluster, run_partitions
    from wqa.io.progress import stop_on_signals

    shard = parse_shard("1/1" if options.shard is None else options.shard)
    options.resume_command = shlex.join(options.command_line)
    with stop_on_signals() as stop:
        if options.merge:
            return merge_shards(job, progress=True, stop=stop)
        if options.cluster is not None:
            return run_on_cluster(job, options.cluster, progress=True, stop=stop)
        return run_partitions(job, shard, progress=True, stop=stop)


def state_line(job: Job, report: JobReport) -> str:
    """State of partitions that are not merged by this command."""
    from wqa.errors import printable

    state = f"{report.missing:,} are missing"
    if not report.missing:
        state = "not merged yet; unless another process merges them, run --merge"
    counts = f"{report.computed:,} of {report.partitions:,} partitions {job.wording.participle}"
    return f"{printable(str(job.folder))}: {counts}, {state}"


def rate_line(figures: Dict[str, Any], count: int, units: str) -> str:
    """Time that the partitions took."""
    if not figures.get("seconds"):
        return ""
    rate = count / figures["seconds"]
    return (
        f"\n{figures['partitions']:,} partitions took {figures['seconds']:,.1f} s of their "
        f"workers, {rate:,.1f} {units} a second of one worker"
    )
