"""Parts of a file on several devices of this machine, a process a device.

Process I of N computes shard I of N (`wqa.data.parts.run_parts`) on its own device, and whichever
ends last merges the parts. So a command that was stopped continues on other devices too.
"""

from __future__ import annotations

import multiprocessing
import signal
from multiprocessing.connection import Connection, wait
from typing import Any, Dict, List, Optional, Sequence, Tuple

from wqa.data.parts import PartsReport, PartTask, merge_if_whole, read_parts, run_parts
from wqa.errors import ClusterError, OptionError, Stopped, printable
from wqa.io.progress import StopRequest, stop_on_signals

#: Seconds after which the parent looks at its signals again.
_PAUSE = 0.5


def run_on_devices(
    task: PartTask,
    devices: Sequence[str],
    progress: bool = False,
    stop: Optional[StopRequest] = None,
) -> PartsReport:
    """Compute the parts of some work on several devices of this machine, and merge them.

    Parameters
    ----------
    task : PartTask
        The work.
    devices : sequence of str
        Different devices, such as ``["gpu:0", "gpu:1"]``. Each gets a process with a model of its
        own.
    progress : bool
        Show a bar of the first device's parts on standard error.
    stop : StopRequest, optional
        Once it holds a signal, each process ends after its current part.

    Returns
    -------
    PartsReport

    Raises
    ------
    ClusterError
        If a process fails; the parts that are computed stay.
    OptionError
        If a device is named twice.
    Stopped
        If a signal has stopped the work. What is computed stays.
    WqaError
        As `wqa.data.parts.run_parts` raises it.
    """
    if len(set(devices)) < len(devices):
        raise OptionError("ctx", ", ".join(devices), "different devices")
    stop = stop or StopRequest()
    context = multiprocessing.get_context("spawn")  # MXNet's threads do not survive a fork
    processes: Dict[Connection, Tuple[str, Any]] = {}
    try:
        for number, device in enumerate(devices, 1):
            receiver, sender = context.Pipe(duplex=False)
            shows = progress and number == 1
            arguments = (task.on_device(device), (number, len(devices)), shows, sender)
            process = context.Process(target=_run_shard, args=arguments, daemon=True)
            process.start()
            sender.close()  # so that the end of the process ends the connection
            processes[receiver] = (device, process)
        reports = _reports(processes, stop)
    finally:
        for _, process in processes.values():
            process.kill()  # all have answered, or this is an error
            process.join()
    report, parts = PartsReport(task.finished(task.settings)), read_parts(task)
    if parts is not None:  # the merge was locked when the last process looked
        report = merge_if_whole(parts, progress, stop)
    computed = sum(report.computed for report in reports)
    partitions = max([report.partitions for report in reports])
    seconds = max(report.seconds for report in reports)
    return report._replace(partitions=partitions, computed=computed, seconds=seconds)


def _run_shard(task: PartTask, shard: Tuple[int, int], progress: bool, sender: Connection) -> None:
    """Compute a shard in its own process; sends its report, or the text of its error."""
    with stop_on_signals() as stop:

        def note(number: int, frame: Any) -> None:  # the parent repeats what its group gets
            stop.signal = number

        signal.signal(signal.SIGTERM, note)
        try:
            sender.send(run_parts(task, shard, progress, stop))
        except Stopped as error:
            sender.send(error.signal)
        except Exception as error:
            sender.send(str(error) or type(error).__name__)


def _reports(processes: Dict[Connection, Tuple[str, Any]], stop: StopRequest) -> List[PartsReport]:
    """Wait for all processes, which get the signal that stops this one."""
    waiting, errors = dict(processes), []
    reports: List[PartsReport] = []
    is_told = False
    while waiting:
        if stop.signal and not is_told:
            is_told = True
            for _, process in waiting.values():
                process.terminate()
        for receiver in set(waiting).intersection(wait(list(waiting), _PAUSE)):
            device, process = waiting.pop(receiver)
            try:
                answer = receiver.recv()
            except EOFError:
                process.join()
                answer = f"its process ended with exit code {process.exitcode}"
            if isinstance(answer, PartsReport):
                reports.append(answer)
            elif isinstance(answer, str):
                errors.append(f"{device}: {answer}")
    if stop.signal:
        raise Stopped(stop.signal, "the partitions", "they are in the folder")
    if errors or len(reports) < len(processes):
        problem = printable("; ".join(errors)) or "a process was stopped by a signal"
        hint = "what is computed stays; correct the cause, then run the command again"
        raise ClusterError(f"{len(errors)} of {len(processes)} devices", problem, hint=hint)
    return reports
