# The images of lmagent; compose.yaml runs the first two.
#
# server (the default target): the model server, OpenAI's API on port 1234, models from /models.
#   docker build -t lmagent-server .
#   docker run --rm -p 127.0.0.1:1234:1234 -v ~/models:/models -e LMAGENT_SERVER_KEY=choose-one lmagent-server
# agent: the agent and its gateway on port 7860, working in /workspace. Its first start prints the token.
#   docker build --target agent --build-arg EXTRAS=js -t lmagent-agent .
#   docker run --rm -p 127.0.0.1:7860:7860 -v ~/project:/workspace -v agent:/app/data -e LLM_URL=... lmagent-agent
# lms: the base of an Agentfile that was written for LM Studio's image: it has the command `lms`, and no entry point.
#   docker build --target lms --build-arg EXTRAS=js -t ghcr.io/raine-works/lmstudio-cuda:latest .
#
# BASE          any image with Python 3.11 or newer, pip and a C++ runtime. For CUDA: a runtime image with Python in it.
# EXTRAS        extras of the package: local (llama.cpp engine), transformers; js (agents' tools in JavaScript);
#               cluster (workers and gateways on PostgreSQL: compose.cluster.yaml).
# PACKAGES      Debian packages for the agent's commands; empty for a build without network.
# PIP_OPTIONS   options of pip: for the engine's CUDA, ROCm or Vulkan build the index of that project (docs/models.md);
#               for a build without network "--no-index --find-links /src/wheels", with the wheels in ./wheels.
ARG BASE=python:3.12-slim
FROM ${BASE} AS build
ARG EXTRAS=local
ARG PIP_OPTIONS=""
COPY . /src
RUN python3 -m venv /opt/lmagent \
 && /opt/lmagent/bin/pip install --no-cache-dir --disable-pip-version-check ${PIP_OPTIONS} "/src${EXTRAS:+[${EXTRAS}]}"

FROM ${BASE} AS agent
ARG PACKAGES="git"
RUN if [ -n "${PACKAGES}" ]; then apt-get update && apt-get install -y --no-install-recommends ${PACKAGES} \
 && rm -rf /var/lib/apt/lists/*; fi
COPY --from=build /opt/lmagent /opt/lmagent
# The data folder takes any user, so that the container can run as the owner of the workspace.
RUN useradd --uid 10001 --user-group --no-create-home --home-dir /app/data --shell /usr/sbin/nologin lmagent \
 && mkdir -p /app/data /workspace && chown lmagent:lmagent /app/data /workspace && chmod 1777 /app/data
ENV PATH=/opt/lmagent/bin:$PATH PYTHONUNBUFFERED=1 HOME=/app/data AGENT_DATA_DIR=/app/data AGENT_HOST=0.0.0.0
USER lmagent
WORKDIR /workspace
VOLUME ["/workspace", "/app/data"]
EXPOSE 7860
HEALTHCHECK --interval=10s --timeout=3s --start-period=20s --retries=3 \
    CMD ["python3", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:7860/healthz', timeout=2)"]
ENTRYPOINT ["lmagent", "web", "--lan", "--no-browser", "--port", "7860", "--workspace", "/workspace"]

FROM agent AS lms
USER root
RUN lmagent lms-shim install --dir /opt/lmagent/bin && install -d -m 1777 /output
# `lms agent run F.tar.gz` has no words for what a container needs: the port must be published, and nobody can be asked.
# Namespaces cannot be made in a container without privileges, so tools are confined by Landlock: docs/gateway.md.
ENV LMAGENT_AGENT_BIND=0.0.0.0 LMAGENT_AGENT_YES=1 SANDBOX=landlock
USER lmagent
HEALTHCHECK --interval=10s --timeout=3s --start-period=20s --retries=3 \
    CMD ["python3", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8000/healthz', timeout=2)"]
ENTRYPOINT []

FROM ${BASE} AS server
COPY --from=build /opt/lmagent /opt/lmagent
# Nobody logs in: no shell for the user, no password, no SSH.
RUN useradd --uid 10001 --user-group --create-home --home-dir /var/lib/lmagent --shell /usr/sbin/nologin lmagent \
 && mkdir -p /models && chown lmagent:lmagent /models
ENV PATH=/opt/lmagent/bin:$PATH PYTHONUNBUFFERED=1 AGENT_DATA_DIR=/var/lib/lmagent
USER lmagent
WORKDIR /var/lib/lmagent
VOLUME ["/models", "/var/lib/lmagent"]
EXPOSE 1234
HEALTHCHECK --interval=10s --timeout=3s --start-period=20s --retries=3 \
    CMD ["python3", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:1234/health', timeout=2)"]
ENTRYPOINT ["lmagent", "server", "start", "--foreground", "--bind", "0.0.0.0", "--port", "1234", "--models-dir", "/models"]
