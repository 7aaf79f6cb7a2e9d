//! The principal of a request, from what an authentication layer in front of this one has found out.

use http::request::Parts;
use semel_core::Principal;

use crate::layer::Denied;

/// A service's own type for an authenticated user, which its authentication layer puts into the request's extensions.
///
/// Read by [`Builder::identify_with_extension`](crate::Builder::identify_with_extension).
pub trait Authenticated: Send + Sync + 'static {
    /// Returns the tenant and the caller whose commands these are. They stay the same when a token is rotated.
    ///
    /// # Errors
    /// The reason why this user is not let in.
    fn principal(&self) -> Result<Principal, Denied>;
}

/// Reads the principal from the extension of type `U`. Without one, nobody has authenticated the request.
pub(crate) fn from_extension<U: Authenticated>(request: &Parts) -> Result<Principal, Denied> {
    let Some(user) = request.extensions.get::<U>() else {
        let extension = std::any::type_name::<U>();
        tracing::debug!(
            extension,
            "a request has no such extension: is the authentication layer outside of this one?"
        );
        return Err(Denied::anonymous());
    };
    user.principal()
}
