//! Groups of endpoints: by their tag, or by where their path begins. They make a large document readable.

use super::judge::Endpoint;

/// The number of endpoints from which on a report is shown in groups.
const GROUP_FROM: usize = 25;

/// Endpoints that are shown together.
pub(super) struct Group<'a> {
    pub(super) name: &'a str,
    pub(super) endpoints: Vec<&'a Endpoint>,
}

impl Group<'_> {
    /// The number of endpoints that lack something.
    pub(super) fn lacking(&self) -> usize {
        self.endpoints.iter().filter(|endpoint| !endpoint.missing().is_empty()).count()
    }
}

/// The groups in the order of the document.
pub(super) fn of(endpoints: &[Endpoint]) -> Vec<Group<'_>> {
    let mut groups: indexmap::IndexMap<&str, Vec<&Endpoint>> = indexmap::IndexMap::new();
    for endpoint in endpoints {
        groups.entry(name(endpoint)).or_default().push(endpoint);
    }
    groups.into_iter().map(|(name, endpoints)| Group { name, endpoints }).collect()
}

/// Whether so many endpoints are shown in groups.
pub(super) fn are_wanted(endpoints: &[Endpoint]) -> bool {
    endpoints.len() >= GROUP_FROM
}

/// The name of an endpoint's group: its first tag, or the first segment of its path that says more than a version.
pub(super) fn name(endpoint: &Endpoint) -> &str {
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
