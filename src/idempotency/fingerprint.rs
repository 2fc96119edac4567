//! The fingerprint: was this key used for *this* request before?

use super::key::sha256_of_fields;

/// The rules by which fingerprints are computed today. A change of the canonical form is a new version; the old one keeps
/// being computed while records made by it live, or every retry across the deploy would be called another request.
pub const CURRENT_VERSION: i16 = 1;

/// A digest of everything that makes a request *this* request, and the rules it was computed by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint {
    pub version: i16,
    pub digest: [u8; 32],
}

/// What is compared: the method, the concrete path, the significant query, and the typed body in canonical form. Key
/// order, white space and `null` for absent are gone by then; an amount is not.
#[derive(Debug, Clone, Copy)]
pub struct Compared<'a> {
    pub method: &'a str,
    pub path: &'a str,
    pub query: &'a str,
    pub canonical_body: &'a [u8],
}

/// One request by every version that a live record may carry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fingerprints {
    /// What a new record stores.
    pub current: Fingerprint,
    /// By older rules whose records have not expired yet. Today there are none.
    pub earlier: Vec<Fingerprint>,
}

impl Fingerprints {
    pub fn of(request: Compared<'_>) -> Self {
        Self { current: Fingerprint { version: CURRENT_VERSION, digest: version_1(request) }, earlier: Vec::new() }
    }

    /// Whether this is the request that `stored` was made from. A version we no longer compute matches nothing: refusing a
    /// retry is harmless, replaying a stranger's answer is not.
    pub fn matches(&self, stored: Fingerprint) -> bool {
        self.current == stored || self.earlier.contains(&stored)
    }
}

fn version_1(request: Compared<'_>) -> [u8; 32] {
    sha256_of_fields(&[
        request.method.as_bytes(),
        request.path.as_bytes(),
        request.query.as_bytes(),
        request.canonical_body,
    ])
}
