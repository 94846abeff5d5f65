"""The HTTP service: a ranker for clients that speak Cohere's, Jina's or TEI's rerank API.

Nothing here needs the libraries of the extra ``serve`` before `serve` or `create_app` is called.
"""

from wqa.serve.server import ServeConfig, create_app, read_api_key, serve

__all__ = ["ServeConfig", "create_app", "read_api_key", "serve"]
