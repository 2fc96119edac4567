//! The key of a line, made of what the line is. Question: what makes two charges the same charge?
//!
//! Customer, invoice line and billing period. Not the amount: the same line with another amount must come to the api under the same
//! key, which then refuses it (422 `idempotency_key_reused`); with the amount in the key it would be charged beside the first. Not
//! the day of the run either, or a run past midnight would charge everybody again. Two honest purchases have two invoice lines.

use sha2::{Digest as _, Sha256};

use crate::ids::CustomerId;

/// Named in the digest, so that another kind of key, or a later way to make this one, never meets it.
const KIND: &[u8] = b"charge-run/1";

/// SHA-256 over the fields, each preceded by its length: no separator that a field could contain.
pub(super) fn of(customer: CustomerId, invoice_line: &str, billing_period: &str) -> String {
    let mut hash = Sha256::new();
    for field in [KIND, customer.to_string().as_bytes(), invoice_line.as_bytes(), billing_period.as_bytes()] {
        hash.update((field.len() as u64).to_be_bytes());
        hash.update(field);
    }
    format!("run_{}", hex::encode(hash.finalize()))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    const ADA: CustomerId = CustomerId(42);

    /// Written down: a program of next year must make the keys of this year's, or it charges everybody again.
    #[test]
    fn a_key_is_for_ever() {
        let key = of(ADA, "INV-7/1", "2026-11");
        assert_eq!(key, "run_c4ed04c6f980f030e03a02729b70aa60d086155c644a782fc73746797f18bcf2");
        assert!(key.len() <= 255 && key.bytes().all(|byte| byte.is_ascii_graphic()));
    }

    #[test]
    fn no_two_businesses_share_a_key_wherever_a_field_ends() {
        let all = [
            of(ADA, "INV-7/1", "2026-11"),
            of(ADA, "INV-7/1", "2026-12"),
            of(ADA, "INV-7/2", "2026-11"),
            of(CustomerId(4), "2INV-7/1", "2026-11"),
            of(CustomerId(43), "INV-7/1", "2026-11"),
            of(ADA, "INV-7/12", "026-11"),
            of(ADA, "INV-7/12026-11", ""),
            of(ADA, "", "INV-7/12026-11"),
            of(ADA, "INV-7/1,2026-11", ""),
        ];
        assert_eq!(all.iter().collect::<HashSet<_>>().len(), all.len());
    }
}
