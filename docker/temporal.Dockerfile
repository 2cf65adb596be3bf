# Temporal's server, and its tool for the tables, from the Go module. The context is the directory that `scripts/temporal-cluster build`
# prints; `scripts/build-images --services` builds this image.
ARG BASE=debian:bookworm-slim
# hadolint ignore=DL3006
FROM ${BASE}
RUN useradd --uid 1000 --no-create-home --shell /usr/sbin/nologin temporal
COPY temporal-server temporal-sql-tool /usr/local/bin/
COPY schema /etc/temporal/schema
USER 1000
WORKDIR /etc/temporal
# The settings come from environment variables; the server has a template for them.
CMD ["temporal-server", "--allow-no-auth", "start"]
