"""The page at `/`: its files and their headers.

A browser that obeys the headers loads nothing from elsewhere, runs no script but the page's own
files, and does not show the page inside another one. The page itself holds no secret, so that it
needs no key; its requests do.
"""

from __future__ import annotations

import pathlib
from typing import Callable, Dict, Tuple

from fastapi import FastAPI
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


def add_page(app: FastAPI) -> None:
    """Add the page and its files to an application."""
    for path, (name, kind) in FILES.items():
        send = _sender(name, kind)
        app.add_api_route(path, send, methods=["GET", "HEAD"], include_in_schema=False)


def _sender(name: str, kind: str) -> Callable[[], FileResponse]:
    """Endpoint that sends one file."""

    def send() -> FileResponse:
        return FileResponse(FOLDER / name, media_type=kind, headers=HEADERS)

    return send
