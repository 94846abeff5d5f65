"""The table of a run, on the terminal and as a page."""

import platform

COLUMNS = ("attack", "tries", "faults", "seconds")


def table(tallies):
    """Lines of the table.

    Parameters
    ----------
    tallies : iterable of soak.supervisor.Tally
        Counts of the attacks.

    Returns
    -------
    list of str
        A Markdown table, and after it a line for everything that could not be tried.
    """
    lines = ["| " + " | ".join(COLUMNS) + " |", "| --- | ---: | ---: | ---: |"]
    skipped = []
    for tally in tallies:
        count = f"{tally.units:,} {tally.unit}" if tally.units else "no try"
        lines.append(f"| {tally.name} | {count} | {len(tally.faults)} | {tally.seconds:,.0f} |")
        skipped += [f"{tally.name}: {text}" for text in sorted(tally.unavailable)]
    if skipped:
        lines += ["", *(f"Skipped: {text}." for text in skipped)]
    return lines


def summary(tallies, further=0):
    """One line: the number of faults, or the attacks that attacked nothing.

    Parameters
    ----------
    tallies : iterable of soak.supervisor.Tally
        Counts of the attacks.
    further : int
        Number of faults that are not of one attack.

    Returns
    -------
    str
        The line.
    """
    tallies = list(tallies)
    count = further + sum(len(tally.faults) for tally in tallies)
    if count:
        return f"{count} faults" if count > 1 else "1 fault"
    idle = [tally.name for tally in tallies if not tally.units]
    return f"no try: {', '.join(idle)}" if idle else "no fault"


def write_page(path, tallies, minutes, seed, processes):
    """Write the page of the documentation.

    Parameters
    ----------
    path : pathlib.Path
        The page.
    tallies : iterable of soak.supervisor.Tally
        Counts of the attacks.
    minutes : float
        Time that the run took.
    seed : int
        Its seed.
    processes : int
        Number of workers at a time.
    """
    tallies = list(tallies)
    together = f"{processes} processes at a time" if processes > 1 else "one process at a time"
    lines = [
        "# Soak test",
        "",
        "`make soak` attacks the package: it kills commands, damages files, fuzzes corpora, runs",
        "commands and threads at the same time, interrupts and forks. A try has a fault if the",
        "package crashes, hangs, raises an error that is not one of `wqa.errors`, or gives another",
        "result than without the attack. `tests/test_soak.py` makes a few tries of every attack.",
        "",
        f"The last run took {minutes:.1f} minutes with seed {seed}, {together}:",
        "",
        *table(tallies),
        "",
        f"Machine: {_processor()}; {_versions()}.",
        "",
        "## Attacks",
        "",
    ]
    for tally in tallies:
        summary_line = " ".join(tally.doc.strip().split("\n\n")[0].split())
        lines.append(f"- **{tally.name}**: {summary_line}")
    faults = [(tally.name, *fault) for tally in tallies for fault in tally.faults]
    if faults:
        lines += ["", "## Faults", ""]
        for name, number, text, _ in faults:
            first = " ".join((text.strip() or "no message").splitlines()[0].split())
            lines.append(f"- {name} {number}: `{first.replace('`', '')}`")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _processor():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        for line in file:
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.machine()


def _versions():
    import mxnet
    import numpy

    import wqa

    versions = {
        "wqa": wqa.__version__,
        "Python": platform.python_version(),
        "MXNet": mxnet.__version__,
        "NumPy": numpy.__version__,
    }
    return ", ".join(f"{name} {version}" for name, version in versions.items())
