"""The page at `/`: its files and their headers.

A browser that obeys the headers loads nothing from elsewhere, runs no script but the page's own
files, and does not show the page inside another one. The page itself holds no secret, so that it
needs no key; its requests do.
"""

from __future__ import annotations

import pathlib
from typing import Dict, Tuple

from fastapi import APIRouter
from fastapi.responses import FileResponse

FOLDER = pathlib.Path(__file__).parent / "page"

#: The page's files and their types, by path. No other file can be requested.
FILES: Dict[str, Tuple[str, str]] = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/page/style.css": ("style.css", "text/css; charset=utf-8"),
    "/page/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "/page/ranking.js": ("ranking.js", "text/javascript; charset=utf-8"),
    "/page/icon.svg": ("icon.svg", "image/svg+xml"),
}

#: Headers of each file.
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "Cache-Control": "no-cache",  # a browser asks whether a file has changed
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


def page_router() -> APIRouter:
    """Routes of the page and its files.

    Returns
    -------
    fastapi.APIRouter
        Routes for GET and HEAD, which stand in no schema.
    """
    router = APIRouter(include_in_schema=False)
    for path, (name, kind) in FILES.items():
        router.add_api_route(path, _sender(name, kind), methods=["GET", "HEAD"])
    return router


def _sender(name: str, kind: str):
    """Endpoint that sends one file."""

    def send() -> FileResponse:
        return FileResponse(FOLDER / name, media_type=kind, headers=HEADERS)

    return send
