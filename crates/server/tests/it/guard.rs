//! The head guard in front of a real hyper server, over real sockets.

mod good;
mod lab;
mod limits;
mod smuggling;
