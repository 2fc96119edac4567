# One image for every role; the command says which. PostgreSQL is not in it: roles take DATABASE_URL.
FROM rust:1-slim-bookworm AS builder
WORKDIR /src
COPY . .
# Without the feature `classroom`: no crash point is in this image.
# Queries were checked against the schema when .sqlx/ was written, so no database is needed here.
RUN cargo build --release --locked --no-default-features --bin checkout

FROM debian:bookworm-slim
# A payment gateway that is not a mock is reached over TLS, and its certificate must be checked against something.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends ca-certificates \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --system --uid 10001 --no-create-home checkout
COPY --from=builder /src/target/release/checkout /usr/local/bin/checkout
# Nothing is written to the file system, and nothing needs a privilege.
USER 10001
ENTRYPOINT ["checkout"]
CMD ["--help"]
