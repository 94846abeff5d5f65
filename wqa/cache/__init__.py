"""The document cache: encodings of documents on disk. Nothing here needs MXNet."""
