//! What became of each line, written as it becomes known. Question: what does a person find when the run is over, or dead?
//!
//! `FILE.results.csv` has a row for each line of the file, `FILE.rejected.csv` the rows that somebody has to correct, as they
//! came. Both are written anew by every run: the api remembers, they need not.

use std::{
    fs::{File, OpenOptions, TryLockError},
    path::{Path, PathBuf},
};

use anyhow::Context;

use super::{
    file::{Rejected, Repeated},
    line::{COLUMNS, Line},
    till::{End, Kind},
};

const HEADER: [&str; 12] = [
    "line",
    "outcome",
    "customer",
    "invoice_line",
    "billing_period",
    "amount",
    "currency",
    "charge_id",
    "gateway_id",
    "attempts",
    "idempotency_key",
    "detail",
];

#[derive(Debug)]
pub(super) struct Results {
    results: csv::Writer<File>,
    results_path: PathBuf,
    rejected: Option<csv::Writer<File>>,
    rejected_path: PathBuf,
}

impl Results {
    /// Beside `file`. One run at a time writes there; a second one is refused before it has sent anything.
    pub(super) fn create(file: &Path) -> anyhow::Result<Self> {
        let (results_path, rejected_path) = (file.with_extension("results.csv"), file.with_extension("rejected.csv"));
        let results = OpenOptions::new().create(true).truncate(false).write(true).open(&results_path);
        let results = results.with_context(|| format!("cannot write {}", results_path.display()))?;
        match results.try_lock() {
            Err(TryLockError::WouldBlock) => {
                anyhow::bail!("another run is writing {}", results_path.display());
            }
            locked => locked.with_context(|| format!("cannot lock {}", results_path.display()))?,
        }
        results.set_len(0).with_context(|| format!("cannot empty {}", results_path.display()))?;
        // What an earlier run rejected may have been corrected since.
        match std::fs::remove_file(&rejected_path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(error).with_context(|| format!("cannot remove {}", rejected_path.display()));
            }
            _ => {}
        }
        let mut results =
            Self { results: csv::Writer::from_writer(results), results_path, rejected: None, rejected_path };
        results.row(HEADER.map(str::to_owned))?;
        Ok(results)
    }

    pub(super) fn note(&mut self, line: &Line, end: &End) -> anyhow::Result<()> {
        self.row(row(line, end))?;
        if end.kind == Kind::Rejected {
            let row = csv::ByteRecord::from(line.fields().to_vec());
            self.keep(&Rejected { number: line.number, reason: end.detail.clone(), row })?;
        }
        Ok(())
    }

    /// A line that was not sent.
    pub(super) fn leave(&mut self, line: &Line) -> anyhow::Result<()> {
        self.row(row(line, &End::unsent(Kind::NotSent, String::new())))
    }

    pub(super) fn repeat(&mut self, repeated: &Repeated) -> anyhow::Result<()> {
        let detail = format!("the same charge as line {}", repeated.first);
        self.row(row(&repeated.line, &End::unsent(Kind::Repeated, detail)))
    }

    /// A row that is no line: what it says is kept beside, as it came.
    pub(super) fn reject(&mut self, rejected: &Rejected) -> anyhow::Result<()> {
        let mut fields = HEADER.map(|_| String::new());
        fields[0] = rejected.number.to_string();
        fields[1] = Kind::Rejected.name().to_owned();
        fields[HEADER.len() - 1].clone_from(&rejected.reason);
        self.row(fields)?;
        self.keep(rejected)
    }

    /// Where everything is to be found, for a person.
    pub(super) fn places(&self) -> String {
        let results = format!("results: {}", self.results_path.display());
        match self.rejected {
            Some(_) => format!("{results}\nto be corrected: {}", self.rejected_path.display()),
            None => results,
        }
    }

    /// On disk, if the disk is honest.
    pub(super) fn finish(&mut self) -> anyhow::Result<()> {
        for writer in std::iter::once(&mut self.results).chain(&mut self.rejected) {
            writer.flush()?;
            writer.get_ref().sync_all().context("cannot write the results to disk")?;
        }
        Ok(())
    }

    /// Each row is written at once: the next moment may be the last.
    fn row(&mut self, fields: [String; HEADER.len()]) -> anyhow::Result<()> {
        let written = self.results.write_record(&fields).map_err(anyhow::Error::from);
        written
            .and_then(|()| Ok(self.results.flush()?))
            .with_context(|| format!("cannot write {}", self.results_path.display()))
    }

    fn keep(&mut self, rejected: &Rejected) -> anyhow::Result<()> {
        let writer = match &mut self.rejected {
            Some(writer) => writer,
            none => none.insert(start_rejected(&self.rejected_path)?),
        };
        let (number, reason) = (rejected.number.to_string(), rejected.reason.as_str());
        let fields = [number.as_bytes(), reason.as_bytes()].into_iter().chain(rejected.row.iter());
        let written = writer.write_record(fields).map_err(anyhow::Error::from);
        written
            .and_then(|()| Ok(writer.flush()?))
            .with_context(|| format!("cannot write {}", self.rejected_path.display()))
    }
}

/// Rows that are too short or too long are kept as they came, behind their number and reason.
fn start_rejected(path: &Path) -> anyhow::Result<csv::Writer<File>> {
    let file = File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
    let mut writer = csv::WriterBuilder::new().flexible(true).from_writer(file);
    writer.write_record(["line", "reason"].into_iter().chain(COLUMNS))?;
    Ok(writer)
}

fn row(line: &Line, end: &End) -> [String; HEADER.len()] {
    let [customer, invoice_line, billing_period, amount, currency, _] = line.fields();
    [
        line.number.to_string(),
        end.kind.name().to_owned(),
        customer,
        invoice_line,
        billing_period,
        amount,
        currency,
        end.charge_id.clone().unwrap_or_default(),
        end.gateway_id.clone().unwrap_or_default(),
        end.attempts.to_string(),
        line.key(),
        end.detail.clone(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_run_at_a_time_and_nothing_of_an_earlier_one_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("november.csv");
        let at = |name: &str| folder.path().join(name);
        let rejected =
            Rejected { number: 3, reason: "is odd".to_owned(), row: csv::ByteRecord::from(vec!["a", "b,c"]) };
        let mut first = Results::create(&file).unwrap();
        first.reject(&rejected).unwrap();
        assert!(format!("{:#}", Results::create(&file).unwrap_err()).contains("another run is writing"));
        let kept = std::fs::read_to_string(at("november.rejected.csv")).unwrap();
        assert_eq!(kept.lines().last(), Some("3,is odd,a,\"b,c\""));
        let noted = std::fs::read_to_string(at("november.results.csv")).unwrap();
        assert_eq!(noted.lines().last(), Some("3,rejected,,,,,,,,,,is odd"));
        drop(first);
        drop(Results::create(&file).unwrap());
        assert!(!at("november.rejected.csv").exists());
        assert_eq!(std::fs::read_to_string(at("november.results.csv")).unwrap().lines().count(), 1);
    }
}
