"""Downloads of the data scripts: resumed, checked, and given their name only when complete."""

import contextlib
import http.client
import os
import sys
import urllib.error
import urllib.request
import zlib

from tqdm import tqdm

from wqa.errors import DataError, printable
from wqa.io import files
from wqa.io.archives import require_space
from wqa.io.files import storage_errors

#: Addresses of TANDA's release, of its corpus and its encoders, the present one first.
TANDA = (
    "https://d3t7erp6ge410c.cloudfront.net/tanda-aaai-2020",
    "https://wqa-public.s3.amazonaws.com/tanda-aaai-2020",
)
BLOCK = 1 << 20
#: Greatest size of a small file, in bytes.
SMALL = 1 << 26
#: Raised where a server cannot be reached, or breaks off.
FAILURES = (OSError, http.client.HTTPException)


class AddressError(DataError):
    """An address that cannot be reached, or that does not hold the file."""


def read_small(url):
    """Return the bytes of a small file, or None if the server has no such file."""
    try:
        with urllib.request.urlopen(url, timeout=60) as source:
            content = source.read(SMALL + 1)
    except urllib.error.HTTPError as error:
        if error.code in (403, 404):  # some stores answer 403 for a missing file
            return None
        raise _unreachable(url, error) from None
    except FAILURES as error:
        raise _unreachable(url, error) from None
    if len(content) > SMALL:
        raise DataError(url, f"more than {SMALL:,} bytes", "a small file")
    return content


def download(urls, target, sha256="", option="--archive"):
    """Download a file to ``target`` and return its SHA-256.

    ``urls`` is the file's address, or several that are tried in turn. An interrupted download
    continues at its last byte, from the same address. ``sha256``, where given, is checked before
    the file gets its name. ``option`` is the one that takes a local copy, for messages.
    """
    urls = [urls] if isinstance(urls, str) else list(urls)
    parts = [_part(target, url if len(urls) > 1 else "") for url in urls]
    failures = []
    for url, part in zip(urls, parts):
        try:
            digest = _fetch(url, part, target, sha256, option)
            break
        except AddressError as error:
            failures.append(error)
            if len(failures) < len(urls):
                note = f"note: {error.where}: {error.found}; the next address is tried"
                print(printable(note), file=sys.stderr)
    else:
        raise _no_address(failures, target, sha256, option)
    with storage_errors(target):
        os.replace(part, target)
        for rest in parts:  # of addresses that broke off
            rest.unlink(missing_ok=True)
    return digest


def _part(target, url):
    """Return where a download is written until it is complete.

    The copies of several addresses may differ, so each address has a file of its own.
    """
    name = f"{target.name}.{zlib.crc32(url.encode()):08x}" if url else target.name
    return target.with_name(f".{name}.part")


def _no_address(failures, target, sha256, option):
    """Return the error of a file that no address gives; it says how each address failed."""
    if len(failures) == 1:
        return failures[0]
    return AddressError(
        target.name,
        "no address gives it: " + ", ".join(f"{error.where}: {error.found}" for error in failures),
        f"SHA-256 {sha256}" if sha256 else "",
        f"fetch it elsewhere and pass it with {option}",
    )


def _fetch(url, part, target, sha256, option):
    """Download the rest of a file to ``part`` and return the SHA-256 of the whole."""
    with storage_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        start = part.stat().st_size if part.exists() else 0
    headers = {"Range": f"bytes={start}-"} if start else {}
    try:
        request = urllib.request.Request(url, headers=headers)
        with urllib.request.urlopen(request, timeout=60) as source:
            if source.headers.get_content_type() == "text/html":
                raise OSError("a page in place of the file")
            # A server without ranges sends the whole file.
            _write_rest(source, part, start if source.status == 206 else 0, target)
    except urllib.error.HTTPError as error:
        if error.code != 416:  # nothing is left to download; the digest decides
            raise _unreachable(url, error, option) from None
    except FAILURES as error:
        raise _unreachable(url, error, option) from None
    digest = files.sha256(part)
    if sha256 and digest != sha256:
        part.unlink()
        raise AddressError(
            url,
            f"SHA-256 {digest}",
            sha256,
            f"fetch it again, or pass a copy that you trust with {option}",
        )
    return digest


def _write_rest(source, part, start, target):
    """Write a response to ``part`` from byte ``start`` on, with a progress bar."""
    require_space(target.parent, source.length or 0)
    bar = tqdm(
        total=start + (source.length or 0),
        initial=start,
        unit="B",
        unit_scale=True,
        desc=target.name,
    )
    with storage_errors(target):
        file = open(part, "ab" if start else "wb")  # noqa: SIM115 - closed below
    with bar, contextlib.closing(file):
        while block := source.read(BLOCK):  # its errors are the server's, not the disk's
            with storage_errors(target):
                file.write(block)
                file.flush()
            bar.update(len(block))
    if source.length:
        raise OSError(f"{source.length} bytes are missing; run the command again to go on")


def _unreachable(url, error, option="--archive"):
    return AddressError(
        url, f"cannot be fetched ({error})", mend=f"fetch it elsewhere and pass it with {option}"
    )
