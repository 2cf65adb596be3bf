# PostgreSQL from Debian, with the environment variables and the volume of the official image. The context is this directory;
# `scripts/build-images --services` builds this image.
ARG BASE=debian:bookworm-slim
# hadolint ignore=DL3006
FROM ${BASE}
# The package would create a database of its own.
# hadolint ignore=DL3008
RUN mkdir -p /etc/postgresql-common \
    && echo 'create_main_cluster = false' > /etc/postgresql-common/createcluster.conf \
    && apt-get update -qq \
    && apt-get install -y -qq --no-install-recommends postgresql \
    && rm -rf /var/lib/apt/lists/* \
    && ln -s /usr/lib/postgresql/*/bin/* /usr/local/bin/ \
    && install -d -o postgres -g postgres -m 700 /var/lib/postgresql/data
COPY postgres-start /usr/local/bin/
# Debian's package chooses the number.
# hadolint ignore=DL3066
USER postgres
VOLUME /var/lib/postgresql/data
# The fast shutdown: connections are closed.
STOPSIGNAL SIGINT
CMD ["postgres-start"]
