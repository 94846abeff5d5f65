"""Downloads for the scripts beside this file: resumed where they stopped, checked, and never half
there."""

import hashlib
import os
import urllib.error
import urllib.request

from tqdm import tqdm

from wqa.data import storage_errors
from wqa.errors import DataError

BLOCK = 1 << 20


def read_small(url):
    """Bytes of a small file, or None where the server says that there is none."""
    try:
        with urllib.request.urlopen(url, timeout=60) as source:
            return source.read()
    except urllib.error.HTTPError as error:
        if error.code in (403, 404):  # some stores answer 403 for what they do not hold
            return None
        raise _unreachable(url, error) from None
    except OSError as error:
        raise _unreachable(url, error) from None


def download(url, target, sha256=""):
    """Fetch a file to ``target``; what an interrupted download left is gone on with.

    The digest is checked where one is given, before the file gets its name. Returns the digest.
    """
    part = target.with_name(f".{target.name}.part")
    with storage_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        start = part.stat().st_size if part.exists() else 0
    try:
        request = urllib.request.Request(url, headers={"Range": f"bytes={start}-"} if start else {})
        with urllib.request.urlopen(request, timeout=60) as source:
            start = (
                start if source.status == 206 else 0
            )  # a server without ranges sends the whole file
            with storage_errors(target), open(part, "ab" if start else "wb") as file, tqdm(
                total=start + (source.length or 0),
                initial=start,
                unit="B",
                unit_scale=True,
                desc=target.name,
            ) as bar:
                while block := source.read(BLOCK):
                    bar.update(file.write(block))
            if source.length:
                raise OSError(f"{source.length} bytes are missing; run the command again to go on")
    except urllib.error.HTTPError as error:
        if error.code != 416:  # nothing left to fetch: the digest decides
            raise _unreachable(url, error) from None
    except OSError as error:
        raise _unreachable(url, error) from None
    found = file_sha256(part)
    if sha256 and found != sha256:
        part.unlink()
        raise DataError(
            url,
            f"SHA-256 {found}",
            sha256,
            "fetch it again, or pass a copy that you trust with --archive",
        )
    with storage_errors(target):
        os.replace(part, target)
    return found


def file_sha256(path):
    """Digest of a file, in hexadecimal."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(BLOCK):
            digest.update(block)
    return digest.hexdigest()


def _unreachable(url, error):
    return DataError(
        url, f"cannot be fetched ({error})", mend="fetch it elsewhere and pass it with --archive"
    )
