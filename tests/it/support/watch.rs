//! Who watches the tests themselves. Question: what ends a test that waits for ever?
//!
//! Every wait here has a deadline of its own. A wait that was forgotten would hold up the whole run without a word, so each
//! test is counted from the first thing it starts, and one that is far too old ends the run with its name.

use std::{
    io::Write,
    sync::{Mutex, Once},
    time::{Duration, Instant},
};

/// Many times what the longest test takes on a slow machine.
const FAR_TOO_LONG: Duration = Duration::from_secs(20 * 60);
const BETWEEN_TWO_LOOKS: Duration = Duration::from_secs(5);

static ON_WATCH: Mutex<Vec<(String, Instant)>> = Mutex::new(Vec::new());
static WATCH: Once = Once::new();

thread_local! {
    /// Each test has a thread of its own, and takes this down when it ends, however it ends.
    static THIS_TEST: Watched = Watched::new();
}

struct Watched(Option<String>);

/// From now on, the test of this thread is watched. Threads that are no test's are not.
pub(crate) fn on_watch() {
    THIS_TEST.with(|_| WATCH.call_once(|| drop(std::thread::spawn(watch))));
}

impl Watched {
    fn new() -> Self {
        let name = std::thread::current().name().filter(|name| name.contains("::")).map(ToOwned::to_owned);
        if let Some(name) = &name {
            ON_WATCH.lock().expect("the watch").push((name.clone(), Instant::now()));
        }
        Self(name)
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        if let Some(name) = &self.0 {
            ON_WATCH.lock().expect("the watch").retain(|(watched, _)| watched != name);
        }
    }
}

fn watch() {
    loop {
        std::thread::sleep(BETWEEN_TWO_LOOKS);
        let on_watch = ON_WATCH.lock().expect("the watch");
        if let Some((name, _)) = on_watch.iter().find(|(_, since)| since.elapsed() > FAR_TOO_LONG) {
            // Not `eprintln!`: what a test prints is kept until it ends.
            let said =
                writeln!(std::io::stderr(), "{name} hangs: it runs for over {FAR_TOO_LONG:?}. The run is ended.");
            drop(said);
            std::process::exit(101);
        }
    }
}
