//! Function type that names the caller of a request.

use http::request::Parts;
use semel_core::Principal;
use semel_http::Denied;

/// Returns the principal of a request, or the reason for having none.
pub(crate) type IdentifyCaller = Box<dyn Fn(&Parts) -> Result<Principal, Denied> + Send + Sync>;
