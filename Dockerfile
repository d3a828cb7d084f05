# syntax=docker/dockerfile:1
# Three stages: the first makes the wheels, the second an environment of them and of the locked dependencies, and the
# third has only Python and that environment. No licence is chosen yet: a label org.opencontainers.image.licenses comes
# with it.

FROM python:3.11-slim AS wheels
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
WORKDIR /src
COPY requirements-build.lock ./
RUN pip install --require-hashes -r requirements-build.lock
COPY pyproject.toml README.md ./
COPY app ./app
COPY migrations ./migrations
COPY clients/python ./clients/python
COPY release/wheels.py ./release/
# As `make wheels` does, and byte for byte the same wheels.
RUN python release/wheels.py /dist

FROM python:3.11-slim AS environment
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
RUN python -m venv --without-pip /opt/curator
WORKDIR /src
# The locked dependencies first: this layer changes only when they do.
COPY requirements.lock ./
RUN pip --python /opt/curator/bin/python install --require-hashes -r requirements.lock
COPY --from=wheels /dist /dist
RUN pip --python /opt/curator/bin/python install --no-index --no-deps /dist/*.whl

FROM python:3.11-slim
LABEL org.opencontainers.image.title="curator" \
      org.opencontainers.image.description="Differentially private query service"
RUN groupadd --system --gid 10001 curator \
    && useradd --system --uid 10001 --gid curator --home-dir /var/lib/curator --create-home curator \
    && install -d -o curator -g curator -m 0700 /var/lib/curator/data
COPY --from=environment /opt/curator /opt/curator
ENV PATH=/opt/curator/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    CURATOR_DATA_DIR=/var/lib/curator/data
# By number: an orchestrator that forbids root can see that it is another.
USER 10001:10001
WORKDIR /var/lib/curator
# All that is written lies here, so that the rest may be read-only.
VOLUME ["/var/lib/curator/data"]
EXPOSE 8000
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/healthz', timeout=4)"]
CMD ["curator", "serve", "--host", "0.0.0.0", "--port", "8000"]
