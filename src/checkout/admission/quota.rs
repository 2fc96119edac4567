//! At most so many live keys of one customer. Question: who pays for counting them?
//!
//! Not the claim: counting rows there costs more than the claim itself. An api counts what its customers begin in memory, and
//! every few seconds exchanges that for what all apis have counted (`live_keys`), for the customers it heard of since: one
//! statement to add, one to read. So the quota is an estimate that errs by what one customer may begin within an exchange or
//! two, a customer nobody heard of is let in until the next one, and a crash forgets a few seconds: against a flood of keys
//! meant to fill a disk that is nothing. What was refused, and every retry, is not counted at all.
//!
//! The memory is bounded: beyond [`CUSTOMERS_MAX`] customers between two exchanges the next ones are not counted.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use sqlx::PgPool;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{
    idempotency::live_keys_store::{self, DayCount},
    ids::CustomerId,
};

/// Between two exchanges.
const PAUSE: Duration = Duration::from_secs(2);
const FORGET_EVERY: Duration = Duration::from_secs(3600);
const CUSTOMERS_MAX: usize = 50_000;

/// Cheap to clone; clones share the counts.
#[derive(Debug, Clone)]
pub struct Quota {
    /// 0: no limit.
    most: u64,
    accounts: Arc<Mutex<HashMap<CustomerId, Account>>>,
}

#[derive(Debug, Default)]
struct Account {
    /// By day, the one that ends first at the front: how many, and when they stop counting.
    stored: Vec<(u64, Instant)>,
    /// Begun and not exchanged yet.
    begun: u64,
    /// Under way, and not known yet whether they begin anything. They take room, and are never exchanged: most are retries.
    held: u64,
    /// Asked for since the last exchange.
    active: bool,
}

/// Room for one key, which goes back unless the key was really new.
#[derive(Debug)]
pub struct Room {
    of: Option<(Quota, CustomerId)>,
    filled: bool,
}

impl Quota {
    pub fn new(most: u64) -> Self {
        Self { most, accounts: Arc::default() }
    }

    fn accounts(&self) -> MutexGuard<'_, HashMap<CustomerId, Account>> {
        self.accounts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Room for one more key, or how long it takes until there is.
    pub fn room(&self, customer: CustomerId) -> Result<Room, Duration> {
        if self.most == 0 {
            return Ok(Room { of: None, filled: false });
        }
        let mut accounts = self.accounts();
        if accounts.len() >= CUSTOMERS_MAX && !accounts.contains_key(&customer) {
            return Ok(Room { of: None, filled: false });
        }
        let account = accounts.entry(customer).or_default();
        account.active = true;
        let now = Instant::now();
        account.stored.retain(|(_, until)| *until > now);
        let mut live = account.begun + account.held + account.stored.iter().map(|(keys, _)| keys).sum::<u64>();
        if live < self.most {
            account.held += 1;
            return Ok(Room { of: Some((self.clone(), customer)), filled: false });
        }
        for (keys, until) in &account.stored {
            live -= keys;
            if live < self.most {
                return Err(*until - now);
            }
        }
        // All of it was begun just now; the next exchange knows until when it lives.
        Err(PAUSE)
    }

    /// What is to be added, and for whom it is to be asked. Whoever was quiet is forgotten: the database remembers.
    fn take(&self) -> (Vec<i64>, Vec<i64>) {
        let mut accounts = self.accounts();
        accounts.retain(|_, account| account.active || account.begun > 0 || account.held > 0);
        let mut asked: Vec<_> =
            accounts.iter().map(|(customer, account)| (customer.0, account.begun.cast_signed())).collect();
        asked.sort_unstable();
        accounts.values_mut().for_each(|account| account.active = false);
        asked.into_iter().unzip()
    }

    fn put(&self, customers: &[i64], added: &[i64], counts: &[DayCount]) {
        let (mut accounts, now) = (self.accounts(), Instant::now());
        for (customer, added) in customers.iter().zip(added) {
            if let Some(account) = accounts.get_mut(&CustomerId(*customer)) {
                account.begun = account.begun.saturating_sub(added.unsigned_abs());
                account.stored.clear();
            }
        }
        for count in counts {
            if let Some(account) = accounts.get_mut(&CustomerId(count.customer)) {
                let until = now + Duration::from_secs(count.frees_in_s.unsigned_abs());
                account.stored.push((count.keys.unsigned_abs(), until));
            }
        }
    }

    async fn exchange(&self, pool: &PgPool, expiry_hours: i32) -> sqlx::Result<()> {
        let (customers, begun) = self.take();
        if customers.is_empty() {
            return Ok(());
        }
        let counts = live_keys_store::exchange(pool, &customers, &begun, expiry_hours).await?;
        self.put(&customers, &begun, &counts);
        Ok(())
    }

    /// Exchanges until `stop`, and once more. In vain nothing is lost: it is tried again.
    pub async fn keep(self, pool: PgPool, expiry_hours: u32, stop: CancellationToken) {
        let expiry_hours = i32::try_from(expiry_hours).unwrap_or(i32::MAX);
        let mut forgot = None::<Instant>;
        if self.most == 0 {
            return;
        }
        loop {
            let last = stop.is_cancelled();
            if let Err(error) = self.exchange(&pool, expiry_hours).await {
                tracing::warn!(%error, "the live keys could not be counted");
            }
            if forgot.is_none_or(|at| at.elapsed() >= FORGET_EVERY) {
                if let Err(error) = live_keys_store::forget_old(&pool, expiry_hours).await {
                    tracing::warn!(%error, "old counts of keys could not be forgotten");
                }
                forgot = Some(Instant::now());
            }
            if last {
                return;
            }
            let _ = tokio::time::timeout(PAUSE, stop.cancelled()).await;
        }
    }
}

impl Room {
    /// The key was new, and counts.
    pub fn fill(&mut self) {
        self.filled = true;
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let Some((quota, customer)) = self.of.take() else { return };
        if let Some(account) = quota.accounts().get_mut(&customer) {
            account.held = account.held.saturating_sub(1);
            account.begun += u64::from(self.filled);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADA: CustomerId = CustomerId(1);
    const DAY_S: i64 = 86_400;

    fn stored(keys: i64, frees_in_s: i64) -> DayCount {
        DayCount { customer: ADA.0, frees_in_s, keys }
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_not_new_takes_no_room_and_the_wait_ends_with_the_day_that_makes_enough() {
        let quota = Quota::new(10);
        for _ in 0..100 {
            let _retry = quota.room(ADA).unwrap();
        }
        (0..4).for_each(|_| quota.room(ADA).unwrap().fill());
        let (customers, begun) = quota.take();
        assert_eq!((customers.as_slice(), begun.as_slice()), (&[ADA.0][..], &[4][..]));
        quota.put(&customers, &begun, &[stored(1, 60), stored(9, DAY_S), stored(4, 2 * DAY_S)]);
        assert_eq!(quota.room(ADA).unwrap_err(), Duration::from_secs(86_400), "one less would not do");
        assert!(quota.room(CustomerId(2)).is_ok());
        tokio::time::advance(Duration::from_secs(86_401)).await;
        assert!(quota.room(ADA).is_ok());
    }

    /// Else a customer who only ever asks again would be at the end of the quota one day.
    #[test]
    fn a_retry_under_way_at_an_exchange_is_not_counted_for_good() {
        let quota = Quota::new(3);
        for _ in 0..100 {
            let retry = quota.room(ADA).unwrap();
            let (customers, begun) = quota.take();
            assert_eq!((customers.as_slice(), begun.as_slice()), (&[ADA.0][..], &[0][..]));
            quota.put(&customers, &begun, &[]);
            drop(retry);
        }
        let _under_way = [quota.room(ADA).unwrap(), quota.room(ADA).unwrap(), quota.room(ADA).unwrap()];
        assert!(quota.room(ADA).is_err(), "what is under way takes room");
    }

    #[test]
    fn whoever_was_quiet_is_forgotten_but_not_what_he_began() {
        let quota = Quota::new(3);
        quota.room(ADA).unwrap().fill();
        assert_eq!(quota.take().1, [1]);
        assert_eq!(quota.take().1, [1], "not exchanged yet");
        quota.put(&[ADA.0], &[1], &[stored(1, DAY_S)]);
        assert!(quota.take().0.is_empty() && quota.accounts().is_empty());
    }
}
