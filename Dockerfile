# Serves the run that is mounted at /run:
#   docker build -t wqa .
#   docker run --rm -p 8080:8080 -v "$PWD/runs/cascade:/run:ro" wqa
# Any other command of wqa takes the place of the last line: docker run --rm wqa doctor

FROM python:3.11-slim AS build
# gluonnlp comes as source, with an extension in C.
RUN apt-get update \
    && apt-get install -y --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*
RUN python -m venv /opt/wqa
WORKDIR /src
COPY setup.py pyproject.toml constraints.txt README.md LICENSE ./
COPY wqa ./wqa
# The variable also holds for the environment in which gluonnlp is built.
RUN PIP_CONSTRAINT=/src/constraints.txt /opt/wqa/bin/python -m pip install \
    --no-cache-dir --disable-pip-version-check ".[cpu,serve]"

FROM python:3.11-slim
# MXNet's and oneDNN's libraries link these.
RUN apt-get update \
    && apt-get install -y --no-install-recommends libgomp1 libquadmath0 libstdc++6 \
    && rm -rf /var/lib/apt/lists/*
COPY --from=build /opt/wqa /opt/wqa
ENV PATH=/opt/wqa/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    HF_HUB_OFFLINE=1
RUN useradd --system --uid 10001 --no-create-home --shell /usr/sbin/nologin wqa
USER 10001
WORKDIR /run
EXPOSE 8080
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8080/ready', timeout=4)"]
ENTRYPOINT ["wqa"]
CMD ["serve", "/run", "--host", "0.0.0.0", "--port", "8080"]
