# syntax=docker/dockerfile:1
# Two stages: the first has pip and a build back end, the second only Python and the installed service.

FROM python:3.11-slim AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
RUN python -m venv /opt/curator
WORKDIR /src
# The locked dependencies first: this layer changes only when they do.
COPY requirements.lock ./
RUN /opt/curator/bin/pip install --require-hashes -r requirements.lock
COPY pyproject.toml README.md ./
COPY app ./app
COPY migrations ./migrations
COPY clients/python ./clients/python
RUN /opt/curator/bin/pip install --no-deps ./clients/python .

FROM python:3.11-slim
LABEL org.opencontainers.image.title="curator" \
      org.opencontainers.image.description="Differentially private query service"
RUN groupadd --system --gid 10001 curator \
    && useradd --system --uid 10001 --gid curator --home-dir /var/lib/curator --create-home curator \
    && install -d -o curator -g curator -m 0700 /var/lib/curator/data
COPY --from=build /opt/curator /opt/curator
ENV PATH=/opt/curator/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    CURATOR_DATA_DIR=/var/lib/curator/data
USER curator
WORKDIR /var/lib/curator
VOLUME ["/var/lib/curator/data"]
EXPOSE 8000
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/healthz', timeout=4)"]
CMD ["curator", "serve", "--host", "0.0.0.0", "--port", "8000"]
