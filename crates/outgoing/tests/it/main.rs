//! Tests of the client against real sockets and real TLS, including hostile servers.

mod plain;
mod server;
mod tls;
