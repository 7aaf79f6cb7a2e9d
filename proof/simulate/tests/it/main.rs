//! The simulation itself: it repeats, it finds what is wrong, and it says how to see it again.

mod broken;
mod repeats;
mod tells;
