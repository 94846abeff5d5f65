"""Serve a ranker over HTTP, for clients of Cohere's, Jina's and TEI's rerank APIs.

examples:
  wqa serve runs/wikiqa
  wqa serve runs/wikiqa --drop-ratio 0.3 --port 8080 --workers 2 --api-key-file key.txt
  wqa serve minilm --index indexes/docs
  curl http://127.0.0.1:8080/v2/rerank -d '{"query": "how are glacier caves formed ?",
      "documents": ["Ice melts .", "Glaciers are rivers of ice ."]}'

Endpoints are /v1/rerank (Cohere's and Jina's), /v2/rerank (Cohere's), /rerank and /info (Text
Embeddings Inference's), /api/rank and /api/ranker (our own, with the scores of every exit), /ask
(answers from the collection of --index), /models, /health, /ready and /metrics. --model NAME=RUN
serves a further ranker, which a request chooses by `model`; limits and memory are those of the
process. Requests that wait are ranked together. The key that clients send is that of --api-key-file
or of the environment variable WQA_API_KEY. Logs are lines of JSON on standard error, without
questions and candidates. SIGTERM and Ctrl-C end the service after the requests that it has
accepted.
"""

from __future__ import annotations

import argparse
import sys

from wqa.cli.options import add_drops, add_fields, add_ranking, fields_of, ranking_options
from wqa.io.progress import LossyStream
from wqa.serve import ServeConfig, read_api_key, serve

#: Options that ``--help`` explains.
FIRST = ("host", "port", "workers", "model", "index", "api_key_file", "drops", "precision")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``wqa serve`` to its parser."""
    text = "run directory, .json file, or a name such as minilm or wo+rr"
    parser.add_argument("run", metavar="RUN", help=text)
    text = "a further ranker, which requests choose by its name in `model`; may be repeated"
    parser.add_argument("--model", action="append", default=[], metavar="NAME=RUN", help=text)
    add_fields(parser, ServeConfig)
    text = "file with the key that clients send (default: the variable WQA_API_KEY, or no key)"
    parser.add_argument("--api-key-file", metavar="FILE", help=text)
    add_drops(parser)
    add_ranking(parser, with_cache=False, long_questions=("truncate", "error"))


def run(options: argparse.Namespace) -> int:
    """Run ``wqa serve`` until it is stopped."""
    given = fields_of(options, ServeConfig)
    given.update(api_key=read_api_key(options.api_key_file), models=tuple(options.model))
    config = ServeConfig(**given)
    return serve(options.run, config, _show, **ranking_options(options))


def _show(url: str) -> None:
    text = f"{url} shows the page; Ctrl-C ends the service"
    # A closed standard output does not stop the service.
    print(text, file=LossyStream(sys.stdout), flush=True)
