//! The rules of the house, read off the sources: who may know whom, where SQL and HTTP live, how a file looks. A rule that is
//! not checked decays.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

/// Rooms know values and the way to the database, never each other: only the stories join them.
const ROOMS: [&str; 16] = [
    "idempotency",
    "orders",
    "charges",
    "refunds",
    "customers",
    "gateway",
    "outbox",
    "reviews",
    "leases",
    "event_log",
    "inbox",
    "parking",
    "ledger",
    "receipts",
    "webhooks",
    "reconciliation",
];
/// What joins the rooms. Neither knows the other: they meet in the outbox.
const STORIES: [&str; 2] = ["checkout", "delivery"];
const VALUES: [&str; 6] = ["config", "crash_point", "database", "ids", "money", "wire"];
/// What is another company, and so may know nothing of ours, nor of each other, but the knobs and the port.
const OTHER_COMPANIES: [&str; 2] = ["mock_gateway", "mock_mail"];

const LINES_MAX: usize = 420;
/// From its name to its closing brace: a handler reads, asks and answers.
const HANDLER_LINES_MAX: usize = 20;
/// Where a panic would cost an order.
const PRODUCTION_PATH: [&str; 4] = ["checkout", "delivery", "http", "database"];

struct Source {
    /// Below `src`, with `/`.
    path: String,
    /// Without what only tests see.
    text: String,
    whole: String,
}

impl Source {
    fn room(&self) -> &str {
        self.path.split('/').next().unwrap_or_default().trim_end_matches(".rs")
    }
}

fn sources() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = Vec::new();
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path: PathBuf = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let whole = fs::read_to_string(&path).unwrap();
                let path = path.strip_prefix(&root).unwrap().to_str().unwrap().replace('\\', "/");
                let only_tests = path.ends_with("tests.rs");
                let text = if only_tests { "" } else { whole.split("#[cfg(test)]").next().unwrap_or_default() };
                found.push(Source { text: text.to_owned(), whole, path });
            }
        }
    }
    assert!(found.len() > 40, "only {} sources found", found.len());
    found
}

/// The first names after `crate::`, also inside `use crate::{…}`.
fn known_rooms(text: &str) -> BTreeSet<String> {
    let mut known = BTreeSet::new();
    for rest in text.split("crate::").skip(1) {
        let name = |text: &str| text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
        let Some(list) = rest.strip_prefix('{') else {
            known.insert(name(rest));
            continue;
        };
        let mut depth = 0;
        let mut at_name = true;
        for (place, letter) in list.char_indices() {
            match letter {
                '{' => depth += 1,
                '}' if depth == 0 => break,
                '}' => depth -= 1,
                ',' if depth == 0 => at_name = true,
                letter if at_name && letter.is_alphabetic() => {
                    known.insert(name(&list[place..]));
                    at_name = false;
                }
                _ => {}
            }
        }
    }
    known
}

fn is_production(source: &Source) -> bool {
    PRODUCTION_PATH.contains(&source.room()) || ROOMS.contains(&source.room())
}

fn report(broken: &[String]) {
    assert!(broken.is_empty(), "\n{}", broken.join("\n"));
}

#[test]
fn the_reader_of_imports_sees_nested_ones() {
    let text = "use crate::{a::{b, c}, d, e::f};\nuse crate::g::h;\nlet x = crate::i::j();";
    assert_eq!(known_rooms(text).into_iter().collect::<String>(), "adegi");
}

#[test]
fn rooms_do_not_know_each_other() {
    let mut broken = Vec::new();
    for source in sources() {
        let room = source.room().to_owned();
        let allowed: Vec<&str> = match room.as_str() {
            name if ROOMS.contains(&name) => VALUES.into_iter().chain([room.as_str()]).collect(),
            name if OTHER_COMPANIES.contains(&name) => vec!["config", "serve", name],
            // The stories join the rooms, and know neither the door nor another company.
            name if STORIES.contains(&name) => VALUES.into_iter().chain(ROOMS).chain([room.as_str()]).collect(),
            // The customer's side knows what goes over the wire, and nothing of how it is answered.
            "phone" => vec!["ids", "money", "wire", "phone"],
            "charge_run" => vec!["config", "credential", "ids", "money", "phone", "wire", "charge_run"],
            // The embedded server is a process of ours, and is stopped like every other.
            "database" => VALUES.into_iter().chain(["stop"]).collect(),
            "wire" | "ids" | "money" => VALUES.to_vec(),
            _ => continue,
        };
        for known in known_rooms(&source.text).iter().filter(|known| !allowed.contains(&known.as_str())) {
            broken.push(format!("{}: {room} must not know {known}", source.path));
        }
    }
    report(&broken);
}

#[test]
fn nobody_but_their_starters_knows_the_other_companies() {
    let allowed = ["main.rs", "demo/", "lib.rs"];
    let mut broken = Vec::new();
    for source in sources().iter().filter(|source| !allowed.iter().any(|start| source.path.starts_with(start))) {
        for company in OTHER_COMPANIES.iter().filter(|company| source.room() != **company) {
            if source.text.contains(company) {
                broken.push(format!("{}: names {company} or its schema", source.path));
            }
        }
    }
    report(&broken);
}

#[test]
fn sql_lives_in_stores_and_http_at_the_edges() {
    let sql = ["store.rs", "partitions.rs"];
    let http = ["http/", "mock_gateway/", "console/", "mistakes/", "app.rs", "serve.rs"];
    let mut broken = Vec::new();
    for source in sources() {
        let asks =
            ["query!(", "query_as!(", "query_scalar!(", "sqlx::query("].iter().any(|word| source.text.contains(word));
        if asks
            && !sql.iter().any(|end| source.path.ends_with(end))
            && !source.path.starts_with("database/")
            && !source.path.contains("/store/")
        {
            broken.push(format!("{}: SQL lives in store.rs, or in a folder store", source.path));
        }
        if source.text.contains("axum") && !http.iter().any(|start| source.path.starts_with(start)) {
            broken.push(format!("{}: axum stays at the edges", source.path));
        }
    }
    report(&broken);
}

/// A mistake is a piece of its own, started as a role: nothing right knows of it.
#[test]
fn the_museum_is_known_to_nobody() {
    let mut broken = Vec::new();
    for source in sources().iter().filter(|source| !matches!(source.room(), "mistakes" | "main" | "lib")) {
        if known_rooms(&source.text).contains("mistakes") {
            broken.push(format!("{}: knows a mistake", source.path));
        }
    }
    report(&broken);
}

/// A `BEGIN` whose caller goes away half way leaves its connection inside a transaction that nobody counts; `database::begin` is
/// the one that cannot be left. The audit has a pool of its own, and says another isolation level aloud.
#[test]
fn transactions_begin_in_one_place() {
    let mut broken = Vec::new();
    for source in sources().iter().filter(|source| !OTHER_COMPANIES.contains(&source.room())) {
        let begins = [".begin()", ".begin_with("].iter().any(|word| source.text.contains(word));
        let is_a_read = source.text.contains(".begin_with(\"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY\")");
        let may = source.path.starts_with("database/") || (source.room() == "audit" && is_a_read);
        if begins && !may && source.text.contains("sqlx::") {
            broken.push(format!("{}: begins a transaction by itself, not by database::begin", source.path));
        }
    }
    report(&broken);
}

/// The database is the only clock of the protocol; a process may measure how long something took, not what time it is.
#[test]
fn the_database_is_the_only_clock() {
    let mut broken = Vec::new();
    for source in sources().iter().filter(|source| is_production(source) && source.room() != "http") {
        for word in ["now_utc", "SystemTime", "now()", "current_date", "CURRENT_TIMESTAMP"] {
            let said = source.text.replace("Instant::now()", "");
            if said.contains(word) {
                broken.push(format!("{}: {word} is another clock than the database's", source.path));
            }
        }
    }
    report(&broken);
}

/// The clock is volatile: asked for each row, it cannot be what an index is searched by, and all of the index is read. Leases are
/// a few rows that are waited for, and want the time after the wait.
#[test]
fn what_is_due_is_found_by_one_look_at_the_clock() {
    let mut broken = Vec::new();
    for source in sources().iter().filter(|source| source.room() != "leases") {
        let asked = ["< db_clock()", "<= db_clock()", "> db_clock()", ">= db_clock()"];
        for word in asked.iter().filter(|word| source.text.contains(**word)) {
            broken
                .push(format!("{}: {word} asks the clock for each row; compare with (SELECT db_clock())", source.path));
        }
    }
    report(&broken);
}

#[test]
fn the_production_path_does_not_panic_on_purpose() {
    let banned = [".unwrap()", ".expect(", "panic!(", "todo!(", "unimplemented!(", "unreachable!(", "dbg!("];
    let mut broken = Vec::new();
    for source in sources().iter().filter(|source| is_production(source)) {
        for word in banned.iter().filter(|word| source.text.contains(**word)) {
            broken.push(format!("{}: {word} is banned here, return what happened", source.path));
        }
    }
    report(&broken);
}

#[test]
fn every_file_opens_with_its_promise_and_fits_its_room() {
    let mut broken = Vec::new();
    for source in sources() {
        if !source.whole.starts_with("//!") && !source.path.ends_with("tests.rs") {
            broken.push(format!("{}: does not open with //!", source.path));
        }
        let lines = source.whole.lines().count();
        if lines > LINES_MAX {
            broken.push(format!("{}: {lines} lines, would two rooms read better?", source.path));
        }
        for name in ["util", "utils", "helpers", "common", "manager", "misc"] {
            if source.path.split(['/', '.']).any(|part| part == name) {
                broken.push(format!("{}: {name} names nothing", source.path));
            }
        }
    }
    report(&broken);
}

/// Whatever a route, or the lack of one, leads to.
fn handlers(page: &str) -> Vec<(String, String)> {
    let routes =
        page.split("Router::new()").nth(1).and_then(|routes| routes.split(".layer(").next()).expect("the routes");
    let words = routes.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':'));
    let names = words.filter_map(|word| word.split_once("::"));
    // Types begin with a capital.
    let handlers = names.filter(|(room, _)| room.starts_with(|first: char| first.is_lowercase()));
    handlers.map(|(room, name)| (room.to_owned(), name.to_owned())).collect()
}

/// The lines of a function, its signature included.
fn length(text: &str, name: &str) -> Option<usize> {
    let from = text.find(&format!("fn {name}("))?;
    Some(text[from..].lines().position(|line| line == "}")? + 1)
}

#[test]
fn handlers_are_short() {
    let sources = sources();
    let text = |paths: &[String]| sources.iter().find(|source| paths.contains(&source.path)).map(|source| &source.text);
    let handlers = handlers(text(&["http/mod.rs".to_owned()]).expect("the page with all routes"));
    assert!(handlers.len() > 10, "{handlers:?}");
    let mut broken = Vec::new();
    for (room, name) in handlers {
        let lines =
            text(&[format!("http/{room}.rs"), format!("http/{room}/mod.rs")]).and_then(|text| length(text, &name));
        match lines {
            Some(lines) if lines <= HANDLER_LINES_MAX => {}
            Some(lines) => {
                broken.push(format!("http/{room}: {name} has {lines} lines, a handler at most {HANDLER_LINES_MAX}"))
            }
            None => broken.push(format!("http/{room}: {name} is routed and not found")),
        }
    }
    report(&broken);
}
