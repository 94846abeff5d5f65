"""Packaging of wqa."""

import pathlib
import re

from setuptools import find_packages, setup

HERE = pathlib.Path(__file__).parent
VERSION = re.search(
    r'__version__ = "(.+)"', (HERE / "wqa" / "__init__.py").read_text(encoding="utf-8")
).group(1)

setup(
    name="wqa",
    version=VERSION,
    description="Answer sentence selection with MXNet and GluonNLP: cascade transformers and "
    "their baselines",
    long_description=(HERE / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    packages=find_packages(include=["wqa", "wqa.*"]),
    package_data={
        "wqa": ["py.typed"],
        "wqa.data": ["builtin/*.jsonl"],
        "wqa.serve": ["page/*"],
        "wqa.systems": ["cards/*.md"],
    },
    python_requires=">=3.8",
    install_requires=[
        "numpy",
        "scipy",
        "sacremoses",  # word tokenization, and detokenizing TREC-QA
        # Reads every pretrained encoder's tokenizer, offline. 0.20 is the last line for Python 3.8,
        # where later ones would be built by a Rust compiler.
        "tokenizers>=0.13; python_version >= '3.9'",
        "tokenizers>=0.13,<0.21; python_version < '3.9'",
        "safetensors>=0.3",  # reads pretrained weights without PyTorch
        "huggingface_hub>=0.16",  # names of the hub's encoders; tokenizers brings it
        "filelock>=3.12",  # one writer for each output, on every file system
        "tqdm",
        "PyYAML",  # headers of TREC runs; huggingface_hub, which tokenizers needs, brings it anyway
        "mmh3>=3.0",  # murmurhash, which indexes of documents hash n-grams by, as DrQA's do
        "regex",  # Unicode's classes of characters in the tokens of documents
    ],
    extras_require={
        # MXNet needs an older numpy, which newer Pythons do not have: there the package ranks
        # exported graphs alone.
        "cpu": [
            "gluonnlp==0.10.0; python_version < '3.12'",
            # Trainings draw by PCG64DXSM of 1.21. MXNet 1.9 uses np.bool, which 1.24 took away.
            "numpy>=1.21,<1.24; python_version < '3.12'",
            "scipy<1.12; python_version < '3.12'",  # the last line that works with that numpy
            "mxnet==1.9.1; python_version < '3.12'",
            # oneDNN 3.2 as a library of its own: MXNet's is 2.4, sealed inside it, and ranks far
            # slower.
            "onednn-cpu-gomp==2023.2.0; platform_machine == 'x86_64' and python_version < '3.12'",
        ],
        "cu112": [
            "gluonnlp==0.10.0; python_version < '3.12'",
            "numpy>=1.21,<1.24; python_version < '3.12'",
            "scipy<1.12; python_version < '3.12'",
            "mxnet-cu112==1.9.1; python_version < '3.12'",
            # The CUDA 11 libraries that the wheel links, but the driver's.
            "nvidia-cublas-cu11==11.11.3.6",
            "nvidia-cuda-nvrtc-cu11==11.8.89",
            "nvidia-cuda-runtime-cu11==11.8.89",
            "nvidia-cudnn-cu11==8.9.6.50",
            "nvidia-cufft-cu11==10.9.0.58",
            "nvidia-curand-cu11==10.3.0.86",
            "nvidia-cusolver-cu11==11.4.1.48",
            "nvidia-nccl-cu11==2.21.5",
            "nvidia-nvtx-cu11==11.8.86",
            # A machine with GPUs ranks on its CPU too.
            "onednn-cpu-gomp==2023.2.0; platform_machine == 'x86_64' and python_version < '3.12'",
        ],
        "plots": ["matplotlib"],  # the pictures of the recipes
        "tune": ["optuna>=3"],  # weights of ensembles, as the paper tunes them
        # Sentences of documents; SpaCy, which the papers use, needs models from a hub.
        "corpora": ["sentencex"],
        "html": ["selectolax", "markdown-it-py"],  # documents of a folder that are HTML or Markdown
        # `--cluster` of `wqa score` and `wqa encode`; grpcio is for ray:// addresses. Older Pythons
        # have no such Ray.
        "ray": [
            "ray==2.60.0; python_version >= '3.10'",
            "grpcio>=1.42; python_version >= '3.10'",
        ],
        # `wqa export --format onnx`, and what runs the graphs, also where MXNet is not installed.
        "onnx": ["onnx>=1.14", "onnxruntime>=1.16"],
        # `wqa serve`, whose workers are those of uvicorn 0.30.
        "serve": ["fastapi", "pydantic>=2.10", "uvicorn>=0.30", "prometheus-client"],
        # The site of docs/ and the reference that is made of the docstrings; Python 3.10 or newer.
        "docs": [
            "jinja2",
            "mkdocs",
            "mkdocs-material",
            "mkdocstrings[python]",
            "griffe-sphinx",
            "ruff",
        ],
        # Rankers as parts of these, `wqa.adapters`; they work beside MXNet's numpy.
        "pyterrier": ["python-terrier>=0.11"],
        "langchain": ["langchain-core>=0.3; python_version >= '3.9'"],
        "llamaindex": ["llama-index-core>=0.11; python_version >= '3.9'"],
        # Corpora as ir:NAME, and metrics that are not built in.
        "ir": ["ir_datasets>=0.5", "ir-measures>=0.3"],
        "test": [
            "pytest",
            "pytest-xdist",
            "jinja2",
            "jsonschema",
            "hypothesis",
            "ruff",
            "mypy",
            "pytrec-eval-terrier",
            "optuna>=3",
            "fastapi",
            "uvicorn",
            "prometheus-client",
            "sentencex",
            "selectolax",
            "markdown-it-py",
            "onnx>=1.14",
            "onnxruntime>=1.16",
            "playwright",  # drives the Chromium of the machine; it downloads none by itself
        ],
    },
    # A path in a .pth file: setuptools' finder would come after a clone that is named wqa.
    options={"editable_wheel": {"mode": "compat"}},
    entry_points={"console_scripts": ["wqa=wqa.__main__:main"]},
)
