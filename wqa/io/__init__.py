"""Files of any kind: atomic writes, locks, digests, lines, archives, arrays, progress. No MXNet."""
