"""What `compare.py` and `compare_training.py` share: options, directories, and processes that work
in turn.

A contender is a process that loads once and then reads one command a line. It writes one line of
JSON when it is ready, with its setting if it has chosen one, and one after each command. Where it
cannot run, the first line is ``{"left_out": REASON}``, and the comparison goes on without it.
"""

import argparse
import contextlib
import json
import pathlib
import signal
import subprocess
import sys

from wqa.errors import OptionError

HERE = pathlib.Path(__file__).parent
#: Options that are given all or not at all, where a script has them.
TOGETHER = ("pairwise", "cascade", "data", "calibration")


class Contender:
    """A process that works when it is told to.

    Parameters
    ----------
    name : str
        What the process runs, such as ``"wqa cascade"``.
    precision : str
        The precision that it computes in, such as ``"float32"``.
    command : sequence of str or path-like
        The program and its arguments.

    Attributes
    ----------
    turns : list
        What the process answered in each counted turn.
    setting : str
        What the process has chosen, such as the size of its batches.
    """

    def __init__(self, name, precision, command):
        self.name = name
        self.precision = precision
        self.turns = []
        self.setting = ""
        self._command = [str(part) for part in command]
        self._process = None

    def __str__(self):
        return f"{self.name} {self.precision}"

    def start(self):
        """Start the process and wait until it is ready.

        Returns
        -------
        str or None
            Why the processor cannot run it; None where it is ready.
        """
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        answer = self._answer()
        if answer is None and self._process.wait() == -signal.SIGILL:
            return "the process ended at an instruction that the processor does not have (SIGILL)"
        if answer is None:
            self._fail()
        self.setting = answer.get("setting", "")
        return answer.get("left_out")

    def work(self, begin, end):
        """Have the process work on a range of questions or updates.

        Parameters
        ----------
        begin, end : int
            The first one, and the one after the last.

        Returns
        -------
        dict
            The process's answer.
        """
        with contextlib.suppress(BrokenPipeError):  # of a process that has ended
            print(begin, end, file=self._process.stdin, flush=True)
        answer = self._answer()
        return self._fail() if answer is None else answer

    def close(self):
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()

    def _answer(self):
        for line in self._process.stdout:
            if line.startswith("{"):  # libraries print greetings before
                return json.loads(line)
        return None

    def _fail(self):
        status = self._process.wait()
        killed = ", killed, as the system does where memory is short"
        sys.exit(f"{self} ended: status {status}{killed if status == -signal.SIGKILL else ''}")


def start_all(contenders, stack):
    """Start contenders one after another: loading takes more memory than working.

    Parameters
    ----------
    contenders : iterable of Contender
        The processes to start.
    stack : contextlib.ExitStack
        Ends the processes when it closes.

    Returns
    -------
    ready : list of Contender
        Those that work on this processor.
    left_out : list of dict
        Name, precision and reason of the others.
    """
    ready, left_out = [], []
    for contender in contenders:
        stack.callback(contender.close)
        reason = contender.start()
        if reason is None:
            ready.append(contender)
        else:
            row = {"name": contender.name, "precision": contender.precision, "reason": reason}
            left_out.append(row)
        print(f"{contender} is {'left out' if reason else 'ready'}", file=sys.stderr, flush=True)
    return ready, left_out


def lines_of(left_out):
    """Say which contenders are left out, one a line.

    Parameters
    ----------
    left_out : list of dict
        As `start_all` returns it.

    Returns
    -------
    list of str
        Lines for the report.
    """
    return [f"left out: {row['name']} {row['precision']}: {row['reason']}" for row in left_out]


def make_parser(doc):
    """Make a parser of the options that both comparisons have.

    Parameters
    ----------
    doc : str
        Documentation of the script.

    Returns
    -------
    argparse.ArgumentParser
    """
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--peers-python",
        help="interpreter of the environment of peers.txt; without it only wqa is timed",
    )
    parser.add_argument("--pairwise", help="run of a monolithic ranker, in place of random weights")
    parser.add_argument("--cascade", help="run of a cascade on an encoder of the same size")
    parser.add_argument("--data", help="canonical JSONL of the questions, for runs")
    parser.add_argument(
        "--shape",
        default="roberta_12_768_12",
        help="of the random weights: a name of wqa.config.BACKBONES, tiny or tiny_bert (default: "
        "roberta_12_768_12)",
    )
    return parser


def prepare(options, folder, count, candidates, calibrated):
    """Write what a comparison needs, by a process that ends before the first contender starts.

    Without runs, these are rankers with random weights, and ``options.data`` becomes the file of
    the random questions.

    Parameters
    ----------
    options : argparse.Namespace
        Options of `make_parser`; ``calibration`` may be among them.
    folder : pathlib.Path
        Directory for the files.
    count, candidates : int
        The number of random questions, and that of the candidates of one.
    calibrated : int
        The number of random questions that int8 is calibrated on; 0 where nothing runs in int8.

    Returns
    -------
    dict of str to path-like
        Directories: ``pairwise``, ``cascade``, and ``huggingface`` for the peers.
    """
    huggingface = folder / "huggingface"
    own = {name: value for name, value in vars(options).items() if name in TOGETHER}
    if None in own.values() and any(own.values()):
        names = ", ".join(f"--{name}" for name in own)
        raise OptionError(names, "some of them are given", "all of them or none")
    if options.pairwise:
        runs = {"pairwise": options.pairwise, "cascade": options.cascade}
        calibration = getattr(options, "calibration", None)
        arguments = ["complete", *runs.values(), huggingface, calibration or ""]
    else:
        runs = {"pairwise": folder / "pairwise", "cascade": folder / "cascade"}
        options.data = folder / "questions.jsonl"
        arguments = ["make", folder, options.data, options.shape, count, candidates, calibrated]
    run_corpus(*arguments)
    return {**runs, "huggingface": huggingface}


def run_corpus(*arguments):
    """Run `corpus.py`, and end where it fails.

    Parameters
    ----------
    *arguments
        Its command and the command's arguments.
    """
    command = [sys.executable, HERE / "corpus.py", *arguments]
    ended = subprocess.run([str(part) for part in command], stdout=sys.stderr)
    if ended.returncode:
        sys.exit(ended.returncode)
