"""What `compare.py` and `compare_training.py` share: options, directories, and processes that work
in turn.

A contender is a process that loads once and then reads one command a line. It writes one line of
JSON when it is ready, with its setting if it has chosen one, and one after each command. Where it
cannot run, the first line is ``{"left_out": REASON}``, and the comparison goes on without it.
"""

import contextlib
import json
import pathlib
import signal
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).parent


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
        self._errors = None

    def __str__(self):
        return f"{self.name} {self.precision}"

    def start(self):
        """Start the process and wait until it is ready.

        Returns
        -------
        str or None
            Why the processor cannot run it; None where it is ready.
        """
        # A file and not a pipe: nobody reads while the process works, and a full pipe stops it.
        self._errors = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        answer = self._answer()
        if answer is not None:
            self.setting = answer.get("setting", "")
            return answer.get("left_out")
        if self._process.wait() == -signal.SIGILL:
            return "the process ended at an instruction that the processor does not have (SIGILL)"
        return self._fail()

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
            self._errors.close()

    def _answer(self):
        for line in self._process.stdout:
            if line.startswith("{"):  # libraries print greetings before
                return json.loads(line)
        return None

    def _fail(self):
        self._errors.seek(0)
        reason = self._errors.read()[-2000:]
        if self._process.wait() == -signal.SIGKILL:
            reason = f"killed, as the system does where memory is short\n{reason}"
        sys.exit(f"{self} ended: {reason}")


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
        state = "is ready" if reason is None else "is left out"
        print(f"{contender} {state}", file=sys.stderr, flush=True)
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


def add_arguments(parser):
    """Add the options that both comparisons have.

    Parameters
    ----------
    parser : argparse.ArgumentParser
        The script's parser.
    """
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


def parse(parser, together):
    """Parse the command line.

    Parameters
    ----------
    parser : argparse.ArgumentParser
        The script's parser.
    together : sequence of str
        Options that are given all or not at all.

    Returns
    -------
    argparse.Namespace
        The options.
    """
    options = parser.parse_args()
    given = [getattr(options, name) is not None for name in together]
    if any(given) and not all(given):
        parser.error(", ".join(f"--{name}" for name in together) + " go together")
    return options


def prepare(options, folder, count, candidates, calibrated):
    """Write what a comparison needs, by a process that ends before the first contender starts.

    Without runs, these are rankers with random weights, and ``options.data`` becomes the file of
    the random questions.

    Parameters
    ----------
    options : argparse.Namespace
        Options of `add_arguments`; ``calibration`` may be among them.
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
