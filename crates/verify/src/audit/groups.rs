//! Groups of endpoints, by tag or by the beginning of the path, for the report on a large document.

use super::judge::AuditedEndpoint;

/// The smallest number of endpoints that a report shows in groups.
const GROUP_FROM: usize = 25;

/// Endpoints that a report shows together.
pub(super) struct EndpointGroup<'a> {
    pub(super) name: &'a str,
    pub(super) endpoints: Vec<&'a AuditedEndpoint>,
}

impl EndpointGroup<'_> {
    /// Returns the number of endpoints with a missing part.
    pub(super) fn lacking(&self) -> usize {
        self.endpoints.iter().filter(|endpoint| !endpoint.missing().is_empty()).count()
    }
}

/// Returns the groups in the order of the document.
pub(super) fn of(endpoints: &[AuditedEndpoint]) -> Vec<EndpointGroup<'_>> {
    let mut groups: indexmap::IndexMap<&str, Vec<&AuditedEndpoint>> = indexmap::IndexMap::new();
    for endpoint in endpoints {
        groups.entry(name(endpoint)).or_default().push(endpoint);
    }
    groups.into_iter().map(|(name, endpoints)| EndpointGroup { name, endpoints }).collect()
}

/// Returns whether a report shows these endpoints in groups.
pub(super) fn are_wanted(endpoints: &[AuditedEndpoint]) -> bool {
    endpoints.len() >= GROUP_FROM
}

/// Returns the name of an endpoint's group: its first tag, or the first segment of its path that says more than a version.
pub(super) fn name(endpoint: &AuditedEndpoint) -> &str {
    let of_path = || {
        let says_something = |segment: &&str| {
            let is_version = segment.strip_prefix(['v', 'V']).is_some_and(|rest| {
                rest.starts_with(|c: char| c.is_ascii_digit())
                    && rest.chars().all(|c| c.is_ascii_digit() || c == '.')
            });
            !(segment.is_empty() || is_version || *segment == "api" || segment.starts_with('{'))
        };
        endpoint.path.split('/').find(says_something).unwrap_or("/")
    };
    endpoint.tag.as_deref().unwrap_or_else(of_path)
}
