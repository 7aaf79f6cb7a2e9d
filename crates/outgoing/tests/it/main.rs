//! The client against real sockets and real TLS, the hostile ones included.

mod plain;
mod server;
mod tls;
