"""Run real clients of rerank APIs against a service, in an environment of their own.

    python tests/clients/run.py --clients-python .venv-clients/bin/python [--run RUN]

Two services are started: one with a key, and one that refuses whatever comes. The ranker is the
baseline ``wo`` unless a run is named, so that the order is known.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).parent
KEY = "key-of-the-test"
QUESTION = "how do glacier caves form ?"
DOCUMENTS = [
    "Water melts the ice .",
    "glacier caves form in ice .",
    "A river .",
    "caves form .",
    "A glacier .",
]


def main():
    """Start the services, run the clients, and return their exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients-python", required=True, help="interpreter with the clients")
    parser.add_argument("--run", default="wo", help="run to serve (default: the baseline wo)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        key = pathlib.Path(folder) / "key"
        key.write_text(KEY, encoding="utf-8")
        servers = []
        try:
            served = start(servers, options.run, "--api-key-file", str(key))
            small = start(servers, "wo", "--max-candidates", "1")
            expected = rank(options.run)
            case = {"served": served, "small": small, "key": KEY, **expected}
            case.update(question=QUESTION, documents=DOCUMENTS)
            command = [options.clients_python, str(HERE / "calls.py")]
            return subprocess.run(command, input=json.dumps(case), text=True).returncode
        finally:
            for server in servers:
                server.terminate()
                server.wait()


def start(servers, run, *arguments):
    """Start a service; its address."""
    command = [sys.executable, "-m", "wqa", "serve", run, "--port", "0", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(HERE.parent.parent)}
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
    servers.append(server)
    address = ""
    for line in server.stderr:
        if not line.startswith("{"):
            raise SystemExit(line)
        event = json.loads(line)
        if event["event"] == "listening":
            address = f"http://{event['host']}:{event['port']}"
        if event["event"] == "ready":
            break
    else:
        raise SystemExit(f"wqa serve {run} has ended")
    # What it logs from now on must not fill the pipe.
    subprocess.Popen(["cat"], stdin=server.stderr, stdout=subprocess.DEVNULL)
    return address


def rank(run):
    """Order and relevance of the documents, by the library."""
    from wqa import load_ranker

    ranking = load_ranker(run).rank(QUESTION, DOCUMENTS)
    return {"order": ranking.order.tolist(), "relevance": ranking.relevance[ranking.order].tolist()}


if __name__ == "__main__":
    sys.exit(main())
