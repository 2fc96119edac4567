//! Who is connected: how many, and how many from one address. Question: may one machine take all places?

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

/// Clones share it. An address is in it only while it is connected.
#[derive(Debug, Clone, Default)]
pub struct Census(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    by_address: Mutex<HashMap<IpAddr, usize>>,
    open: AtomicU64,
    refused: AtomicU64,
}

/// One connection, until it is dropped.
#[derive(Debug)]
pub(super) struct Counted(Census, IpAddr);

impl Census {
    fn by_address(&self) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
        self.0.by_address.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One more from this address, unless there are `most` already. 0: any number.
    pub(super) fn enter(&self, address: IpAddr, most: usize) -> Option<Counted> {
        let mut by_address = self.by_address();
        let open = by_address.entry(address).or_default();
        if most > 0 && *open >= most {
            self.0.refused.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        *open += 1;
        self.0.open.fetch_add(1, Ordering::Relaxed);
        Some(Counted(self.clone(), address))
    }

    pub fn open(&self) -> u64 {
        self.0.open.load(Ordering::Relaxed)
    }

    /// Closed at once, because their address had enough.
    pub fn refused(&self) -> u64 {
        self.0.refused.load(Ordering::Relaxed)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let Self(census, address) = self;
        let mut by_address = census.by_address();
        if let Some(open) = by_address.get_mut(address) {
            *open -= 1;
            if *open == 0 {
                by_address.remove(address);
            }
        }
        census.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}
