//! Faults that real projects reported, each as a neutral input and the right answer. Question: could it happen here?
//!
//! Where another page plays the input already it is named, and the test here adds what is missing.
//!
//! | case | what went wrong | held by |
//! |---|---|---|
//! | 1 | a key minted per call, not per purchase | `audit::one_client_reference_bought_under_two_keys…`; here: a key kept through failure and restart, and what a key per call costs |
//! | 2 | request and webhook both finish an order | `webhooks::news_of_what_is_known…`, `webhooks::events_that_come_twice…`; here: both and recovery at one moment |
//! | 3 | the loser of the first insert | `orders::two_hundred_identical_first_requests…`; here: two processes, one transaction per request |
//! | 4 | one row, several calls of the gateway | here, at a gateway that ignores keys |
//! | 5 | a fast path that decides | Redis: cannot touch this system yet |
//! | 6 | a passing failure pinned to the key | `orders::what_surely_was_not_sent…`; here: two seconds of refused connections, and refusals |
//! | 7 | a replay that differs | `orders::an_order_is_placed_once…`; here: every header, success and decline, across a restart |
//! | 8 | another tenant's answer | `orders::customers_do_not_see…`, `ownership`; here: at once, and with the other's name in the body |
//! | 9 | a retry taken for another request, or the reverse | `orders::an_order_is_placed_once…`; here: every spelling |
//! | 10 | a cancelled BEGIN | `claims::a_cancelled_begin…`, `hang_ups`; here: a pool of one |
//! | 11 | 409 read as failure | here |
//! | 12 | a key rotated too early | `wire::problem`; here: each outcome tells what to do, and doing it buys once |
//! | 13 | in flight for ever | `recovery::an_order_whose_api_was_killed…`, the crash matrix; here: without a worker, by the retry itself |
//! | 14 | lease arithmetic | `config`, `recovery::an_owner_that_slept…`, `recovery::a_gateway_that_hangs…`; here: a real process refuses, and a gateway that takes the lease and a second |
//! | 15 | dedupe kept, effect lost | `lost_rounds`, the crash matrix; here: an effect that fails again and again |
//! | 16 | a relay that starves, spins or renames | `delivery::a_poison_event…`, `delivery::an_outage_parks_nothing…`, `lost_rounds`; here: two workers behind the oldest that fail |
//! | 17 | retention that deletes live work | `partitions::a_day_goes_when…`, `delivery_trouble::an_event_that_was_parked_longer…`; here: a whole shop that slept for four days |
//! | 18 | retries inside the transport | `gateway::client`; here: the gateway's own count of what it was sent |

mod backstage;
mod keys;
mod outcomes;
mod races;
