"""A process that runs commands for shell scripts, so that each does not import MXNet anew.

    python tests/command_server.py serve SOCKET
    python tests/command_server.py run SOCKET ARGUMENT...
    python tests/command_server.py run SOCKET python SCRIPT ARGUMENT...

The second command gives its folder, environment and arguments to the process of the first, and ends
as ``wqa ARGUMENT...`` does, or as the script. Commands run one after another.
"""

import contextlib
import io
import os
import runpy
import sys
import threading
import traceback
from multiprocessing.connection import Client, Listener


def serve(address):
    """Run the commands that clients send, until standard input ends, as its other process does."""
    import wqa.inference  # noqa: F401 - imported once, for all commands
    import wqa.training  # noqa: F401
    from wqa.cli import main

    threading.Thread(target=_end_with_standard_input, daemon=True).start()
    with Listener(address) as listener:
        print("ready", flush=True)
        while True:
            with listener.accept() as connection:
                connection.send(run(main, *connection.recv()))


def _end_with_standard_input():
    sys.stdin.read()
    os._exit(0)


def run(main, folder, environment, arguments):
    """Exit status, standard output and standard error of a command or of a Python script.

    A script is ``python SCRIPT ARGUMENT...``.
    """
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    if arguments[0] == "python":
        return captured(run_script, *arguments[1:])
    return captured(main, arguments)


def captured(act, *arguments):
    """Exit status, standard output and standard error of a function that may end the process."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status = act(*arguments)
        except SystemExit as end:
            status = end.code or 0
            if not isinstance(status, int):
                print(status, file=sys.stderr)
                status = 1
        except Exception:
            traceback.print_exc()
            status = 1
    return status, out.getvalue(), err.getvalue()


def run_script(script, *arguments):
    """Run a script as `python` does; modules from its folder are imported anew by the next one."""
    folder, path, argv = os.path.dirname(os.path.abspath(script)), list(sys.path), sys.argv
    before = set(sys.modules)
    sys.path.insert(0, folder)
    sys.argv = [script, *arguments]
    try:
        runpy.run_path(script, run_name="__main__")
    finally:
        sys.path[:], sys.argv = path, argv
        for name in set(sys.modules) - before:
            file = getattr(sys.modules[name], "__file__", None) or ""
            if file.startswith(folder + os.sep):
                del sys.modules[name]
    return 0


def send(address, arguments):
    """Exit status of a command that the other process runs; its output is printed."""
    with Client(address) as connection:
        connection.send((os.getcwd(), dict(os.environ), arguments))
        status, out, err = connection.recv()
    sys.stdout.write(out)
    sys.stderr.write(err)
    return status


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(sys.argv[2])
    else:
        sys.exit(send(sys.argv[2], sys.argv[3:]))
