//! A token bucket per customer, in a table that never grows. Question: what of an attacker with a million names?
//!
//! A bucket that has filled up again says nothing that an absent one does not, so the table has a fixed number of places: a
//! customer belongs to one set of a few, and takes there the place of whoever has most left. What is lost by that is only
//! ever in the customer's favour. Which set it is depends on a secret of the process: nobody can aim at another's place.

use std::{
    hash::{BuildHasher, RandomState},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use crate::ids::CustomerId;

/// 32,768 customers at a time, in about a megabyte.
const SETS: usize = 4_096;
const WAYS: usize = 8;

#[derive(Debug, Clone, Copy)]
struct Bucket {
    customer: Option<CustomerId>,
    tokens: f64,
    at: Instant,
}

type Set = Mutex<[Bucket; WAYS]>;

/// All buckets of one kind. Cheap to clone; clones share them.
#[derive(Debug, Clone)]
pub struct Buckets {
    rate_per_s: f64,
    burst: f64,
    sets: Arc<[Set]>,
    secret: RandomState,
}

/// One token, which goes back unless it is spent.
#[derive(Debug)]
pub struct Token {
    from: Option<(Buckets, CustomerId)>,
}

impl Buckets {
    /// `rate_per_s` 0: no limit.
    pub fn new(rate_per_s: u32, burst: u32) -> Self {
        Self::with_sets(rate_per_s, burst, SETS)
    }

    fn with_sets(rate_per_s: u32, burst: u32, sets: usize) -> Self {
        let empty = [Bucket { customer: None, tokens: f64::INFINITY, at: Instant::now() }; WAYS];
        let sets = if rate_per_s == 0 { 0 } else { sets };
        Self {
            rate_per_s: rate_per_s.into(),
            burst: burst.max(1).into(),
            sets: (0..sets).map(|_| Mutex::new(empty)).collect(),
            secret: RandomState::new(),
        }
    }

    fn set_of(&self, customer: CustomerId) -> Option<MutexGuard<'_, [Bucket; WAYS]>> {
        let place = self.secret.hash_one(customer.0) % u64::try_from(self.sets.len().max(1)).unwrap_or(1);
        let set = self.sets.get(usize::try_from(place).unwrap_or(0))?;
        Some(set.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes one for good, or says how long it takes until there is one.
    pub fn take(&self, customer: CustomerId) -> Result<(), Duration> {
        let Some(mut set) = self.set_of(customer) else { return Ok(()) };
        let now = Instant::now();
        for bucket in set.iter_mut() {
            let filled = now.duration_since(bucket.at).as_secs_f64() * self.rate_per_s;
            // An empty place stays the fullest of all.
            if bucket.customer.is_some() {
                bucket.tokens = (bucket.tokens + filled).min(self.burst);
            }
            bucket.at = now;
        }
        let known = set.iter().position(|bucket| bucket.customer == Some(customer));
        let Some(bucket) = (match known {
            Some(place) => set.get_mut(place),
            None => set.iter_mut().max_by(|one, other| one.tokens.total_cmp(&other.tokens)),
        }) else {
            return Ok(());
        };
        if known.is_none() {
            *bucket = Bucket { customer: Some(customer), tokens: self.burst, at: now };
        }
        if bucket.tokens < 1.0 {
            return Err(Duration::from_secs_f64((1.0 - bucket.tokens) / self.rate_per_s));
        }
        bucket.tokens -= 1.0;
        Ok(())
    }

    /// Takes one for as long as it is not known whether it is spent.
    pub fn token(&self, customer: CustomerId) -> Result<Token, Duration> {
        self.take(customer)?;
        Ok(Token { from: Some((self.clone(), customer)) })
    }

    fn put_back(&self, customer: CustomerId) {
        let Some(mut set) = self.set_of(customer) else { return };
        if let Some(bucket) = set.iter_mut().find(|bucket| bucket.customer == Some(customer)) {
            bucket.tokens = (bucket.tokens + 1.0).min(self.burst);
        }
    }
}

impl Token {
    pub fn spend(&mut self) {
        self.from = None;
    }
}

impl Drop for Token {
    fn drop(&mut self) {
        if let Some((buckets, customer)) = self.from.take() {
            buckets.put_back(customer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADA: CustomerId = CustomerId(1);
    const BOB: CustomerId = CustomerId(2);

    #[tokio::test(start_paused = true)]
    async fn a_burst_then_the_rate_and_the_wait_is_what_it_takes() {
        let buckets = Buckets::new(4, 3);
        (0..3).for_each(|_| buckets.take(ADA).unwrap());
        let wait = buckets.take(ADA).unwrap_err();
        assert_eq!(wait, Duration::from_millis(250));
        assert!(buckets.take(BOB).is_ok(), "another customer has a bucket of his own");
        tokio::time::advance(wait - Duration::from_millis(1)).await;
        assert!(buckets.take(ADA).is_err());
        tokio::time::advance(Duration::from_millis(2)).await;
        assert!(buckets.take(ADA).is_ok());
        tokio::time::advance(Duration::from_secs(3600)).await;
        assert_eq!((0..9).filter(|_| buckets.take(ADA).is_ok()).count(), 3, "a long rest fills no more than a bucket");
    }

    #[tokio::test(start_paused = true)]
    async fn a_token_that_was_not_spent_goes_back() {
        let buckets = Buckets::new(1, 1);
        for _ in 0..100 {
            let _replay = buckets.token(ADA).unwrap();
        }
        buckets.token(ADA).unwrap().spend();
        assert!(buckets.token(ADA).is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn any_number_of_customers_fits_and_the_one_with_most_left_makes_room() {
        let buckets = Buckets::with_sets(1, 10, 1);
        (0..10).for_each(|_| buckets.take(ADA).unwrap());
        for stranger in 100..100_000 {
            buckets.take(CustomerId(stranger)).unwrap();
        }
        assert!(buckets.take(ADA).is_err(), "strangers do not refill her bucket");
    }

    #[test]
    fn without_a_rate_there_is_no_limit_and_no_table() {
        let buckets = Buckets::new(0, 1);
        assert!((0..1000).all(|_| buckets.take(ADA).is_ok()) && buckets.sets.is_empty());
    }
}
