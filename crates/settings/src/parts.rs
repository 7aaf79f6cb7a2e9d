//! Values that several tables share: scalars, texts, routes, secrets, services and proxies.

pub(crate) mod proxies;
pub(crate) mod route;
pub(crate) mod scalar;
pub(crate) mod secret;
pub(crate) mod service;
pub(crate) mod text;
pub(crate) mod word;
