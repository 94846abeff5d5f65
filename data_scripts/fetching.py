"""Downloads of the data scripts: resumed, checked, and given their name only when complete."""

import contextlib
import http.client
import os
import urllib.error
import urllib.request

from tqdm import tqdm

from wqa.data import files, storage_errors
from wqa.data.archives import require_space
from wqa.errors import DataError

BLOCK = 1 << 20
#: Greatest size of a small file, in bytes.
SMALL = 1 << 26
#: Raised where a server cannot be reached, or breaks off.
FAILURES = (OSError, http.client.HTTPException)


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


def download(url, target, sha256=""):
    """Download a file to ``target`` and return its SHA-256.

    An interrupted download continues at its last byte. ``sha256``, where given, is checked before
    the file gets its name.
    """
    part = target.with_name(f".{target.name}.part")
    with storage_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        start = part.stat().st_size if part.exists() else 0
    headers = {"Range": f"bytes={start}-"} if start else {}
    try:
        request = urllib.request.Request(url, headers=headers)
        with urllib.request.urlopen(request, timeout=60) as source:
            # A server without ranges sends the whole file.
            _write_rest(source, part, start if source.status == 206 else 0, target)
    except urllib.error.HTTPError as error:
        if error.code != 416:  # nothing is left to download; the digest decides
            raise _unreachable(url, error) from None
    except FAILURES as error:
        raise _unreachable(url, error) from None
    digest = files.sha256(part)
    if sha256 and digest != sha256:
        part.unlink()
        raise DataError(
            url,
            f"SHA-256 {digest}",
            sha256,
            "fetch it again, or pass a copy that you trust with --archive",
        )
    with storage_errors(target):
        os.replace(part, target)
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


def _unreachable(url, error):
    return DataError(
        url, f"cannot be fetched ({error})", mend="fetch it elsewhere and pass it with --archive"
    )
