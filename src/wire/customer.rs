//! What a customer has told of themselves, as the contract shows it.

use serde::Serialize;
use time::OffsetDateTime;

#[derive(Debug, Serialize)]
pub struct EmailBody<'a> {
    pub email: &'a str,
    #[serde(with = "time::serde::rfc3339")]
    pub updated_at: OffsetDateTime,
}
