//! `demo.json`: what other commands need to find a running stack. Question: where is it, and what is its secret?

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context;
use serde::{Deserialize, Serialize};

use crate::{
    credential::{Credentials, Subject},
    database::embedded::{default_data_folder, is_in_use, random_secret, write_private},
    ids::CustomerId,
};

/// Written when the stack is ready, for its owner's eyes only; removed when it stops.
#[derive(Clone, Serialize, Deserialize)]
pub struct DemoState {
    pub api_url: String,
    pub console_url: Option<String>,
    pub gateway_url: String,
    /// Absent in a file that an older checkout wrote.
    #[serde(default)]
    pub mail_url: Option<String>,
    pub worker_url: String,
    pub database_url: String,
    pub secret: String,
}

impl std::fmt::Debug for DemoState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Two of its fields are credentials.
        f.debug_struct("DemoState").field("api_url", &self.api_url).finish_non_exhaustive()
    }
}

impl DemoState {
    /// The state of the demo that runs on this data folder, or on the usual one.
    pub fn read(data_dir: Option<&Path>) -> anyhow::Result<Self> {
        let folder = match data_dir {
            Some(folder) => folder.to_path_buf(),
            None => default_data_folder()?,
        };
        let file = file_in(&folder);
        let text = std::fs::read_to_string(&file)
            .with_context(|| format!("no running demo found, cannot read {}", file.display()))?;
        // One that was killed had no time to remove it.
        anyhow::ensure!(is_in_use(&folder), "the demo that wrote {} is not running", file.display());
        serde_json::from_str(&text).with_context(|| format!("{} is damaged", file.display()))
    }

    /// A bearer token that this stack's api accepts.
    pub fn token(&self, customer: CustomerId, lasting: Duration) -> anyhow::Result<String> {
        Credentials::new(&self.secret)?.mint(Subject::Customer(customer), lasting)
    }

    pub(super) fn write(&self, folder: &Path) -> anyhow::Result<()> {
        let text = serde_json::to_string_pretty(self).context("cannot write the state as JSON")?;
        write_private(&file_in(folder), &text)
    }

    pub(super) fn remove(folder: &Path) -> anyhow::Result<()> {
        let file = file_in(folder);
        match std::fs::remove_file(&file) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(error).with_context(|| format!("cannot remove {}", file.display()))
            }
            _ => Ok(()),
        }
    }
}

/// What signs this folder's bearer tokens. Made once, so that a token outlives a restart of the demo.
pub(super) fn secret_of(folder: &Path) -> anyhow::Result<String> {
    kept(&folder.join("secret"), random_secret)
}

/// What the gateway signs its webhooks with. Made once, so that what is pending outlives a restart, too.
pub(super) fn webhook_secret_of(folder: &Path) -> anyhow::Result<String> {
    kept(&folder.join("webhook_secret"), || format!("whsec_{}", random_secret()))
}

fn kept(file: &Path, make: impl FnOnce() -> String) -> anyhow::Result<String> {
    if !file.exists() {
        write_private(file, &make())?;
    }
    std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))
}

fn file_in(folder: &Path) -> PathBuf {
    folder.join("demo.json")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_without_a_mail_service_is_readable() {
        let written = r#"{"api_url":"a","console_url":null,"gateway_url":"g","worker_url":"w","database_url":"d",
            "secret":"s"}"#;
        let state: DemoState = serde_json::from_str(written).expect("an older state");
        assert_eq!((state.gateway_url.as_str(), state.mail_url), ("g", None));
    }
}
