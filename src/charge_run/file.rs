//! The file as a whole. Question: is every line in it meant, and meant once?
//!
//! All of it is read before anything is sent, because only the whole file tells whether a line is there twice. So it is
//! bounded: what is larger is split by whoever wrote it, and it does not matter where.

use std::{collections::HashMap, fs::File, io::Read, path::Path};

use anyhow::{Context, ensure};
use csv::ByteRecord;

use super::line::{COLUMNS, Fault, Line, What};

const FILE_BYTES_MAX: u64 = 32 * 1024 * 1024;
const ROWS_MAX: usize = 100_000;

/// What a file asks for.
#[derive(Debug, Default)]
pub(super) struct Contents {
    /// Each charge once.
    pub(super) lines: Vec<Line>,
    /// The same charge again, word for word.
    pub(super) repeated: Vec<Repeated>,
    pub(super) rejected: Vec<Rejected>,
}

#[derive(Debug)]
pub(super) struct Repeated {
    pub(super) line: Line,
    /// Where it stood first.
    pub(super) first: u64,
}

impl Repeated {
    pub(super) fn sentence(&self) -> String {
        format!("line {}: repeated: the same as line {}, so the same charge", self.line.number, self.first)
    }
}

/// A row that a person must look at.
#[derive(Debug)]
pub(super) struct Rejected {
    pub(super) number: u64,
    pub(super) reason: String,
    /// As it came.
    pub(super) row: ByteRecord,
}

impl Rejected {
    pub(super) fn sentence(&self) -> String {
        format!("line {}: rejected: {}", self.number, self.reason)
    }
}

/// A row, and what was made of it.
type Row = (u64, ByteRecord, Result<Line, Fault>);

pub(super) fn read(path: &Path) -> anyhow::Result<Contents> {
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes))
        .with_context(|| format!("cannot read {}", path.display()))?;
    ensure!(
        bytes.len() as u64 <= FILE_BYTES_MAX,
        "{} has more than {} MiB: split it, anywhere between two lines",
        path.display(),
        FILE_BYTES_MAX / 1024 / 1024
    );
    contents(&bytes).with_context(|| path.display().to_string())
}

fn contents(bytes: &[u8]) -> anyhow::Result<Contents> {
    let mut reader = csv::ReaderBuilder::new().flexible(true).from_reader(bytes);
    check_header(reader.byte_headers()?)?;
    let mut rows: Vec<Row> = Vec::new();
    for row in reader.into_byte_records() {
        ensure!(rows.len() < ROWS_MAX, "more than {ROWS_MAX} lines: split the file, anywhere between two of them");
        let row = row?;
        let number = row.position().map_or(0, |position| line_number(bytes, position));
        let line = Line::read(number, &row);
        rows.push((number, row, line));
    }
    Ok(sorted_out(rows))
}

/// Where a row really begins: the reader's position is the end of the row before it, and empty lines come after that.
fn line_number(bytes: &[u8], position: &csv::Position) -> u64 {
    let begin = usize::try_from(position.byte()).unwrap_or(usize::MAX).min(bytes.len());
    let breaks = bytes[begin..].iter().take_while(|byte| matches!(byte, b'\r' | b'\n'));
    position.line() + breaks.filter(|byte| **byte == b'\n').count() as u64
}

fn check_header(header: &ByteRecord) -> anyhow::Result<()> {
    if header.iter().eq(COLUMNS.iter().map(|column| column.as_bytes())) {
        return Ok(());
    }
    let given: Vec<String> = header.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect();
    let missing: Vec<&str> = COLUMNS.into_iter().filter(|column| !given.iter().any(|name| name == column)).collect();
    let unknown: Vec<String> = given
        .iter()
        .filter(|name| !COLUMNS.contains(&name.as_str()))
        .map(|name| format!("{:?}", name.chars().take(40).collect::<String>()))
        .collect();
    let what = match (missing.as_slice(), unknown.as_slice()) {
        ([], []) => "has the columns in another order or twice".to_owned(),
        ([], unknown) => format!("has unknown columns: {}", unknown.join(", ")),
        (missing, []) => format!("lacks {}", missing.join(", ")),
        (missing, unknown) => format!("lacks {} and has unknown columns: {}", missing.join(", "), unknown.join(", ")),
    };
    anyhow::bail!("the header must be {}; this one {what}", COLUMNS.join(","))
}

/// What the file says about one charge: where first, and where otherwise, if anywhere. Places in the list of rows.
struct Claim {
    first: usize,
    other: Option<usize>,
}

/// Finds what is there twice. Where two rows differ about one charge, nobody but a person knows which is meant: both are
/// rejected, also where one of them could not be charged anyway.
fn sorted_out(rows: Vec<Row>) -> Contents {
    let claims = claims(&rows);
    let numbers: Vec<u64> = rows.iter().map(|(number, ..)| *number).collect();
    let mut contents = Contents::default();
    for (place, (number, row, line)) in rows.into_iter().enumerate() {
        let claim = what(&line).and_then(|what| claims.get(&what.key()));
        match (line, claim) {
            (Err(fault), _) => contents.rejected.push(Rejected { number, reason: fault.reason, row }),
            (Ok(line), Some(&Claim { first, other: Some(other) })) => {
                let other = numbers[if other == place { first } else { other }];
                let reason = format!("{line} is also on line {other}, with other content: which is meant?");
                contents.rejected.push(Rejected { number, reason, row });
            }
            (Ok(line), Some(&Claim { first, other: None })) if first != place => {
                contents.repeated.push(Repeated { line, first: numbers[first] });
            }
            (Ok(line), _) => contents.lines.push(line),
        }
    }
    contents
}

fn claims(rows: &[Row]) -> HashMap<String, Claim> {
    let mut claims = HashMap::with_capacity(rows.len());
    for (place, (_, _, line)) in rows.iter().enumerate() {
        let Some(key) = what(line).map(What::key) else { continue };
        let claim = claims.entry(key).or_insert(Claim { first: place, other: None });
        if claim.first != place && !is_repeated(&rows[claim.first].2, line) {
            claim.other.get_or_insert(place);
        }
    }
    claims
}

fn is_repeated(first: &Result<Line, Fault>, again: &Result<Line, Fault>) -> bool {
    matches!((first, again), (Ok(first), Ok(again)) if first.is_repeated_by(again))
}

fn what(line: &Result<Line, Fault>) -> Option<&What> {
    match line {
        Ok(line) => Some(&line.what),
        Err(fault) => fault.what.as_ref(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "customer,invoice_line,billing_period,amount,currency,payment_method\n";

    fn of(rows: &str) -> Contents {
        contents(format!("{HEADER}{rows}").as_bytes()).unwrap()
    }

    fn numbers(contents: &Contents) -> (Vec<u64>, Vec<(u64, u64)>, Vec<u64>) {
        (
            contents.lines.iter().map(|line| line.number).collect(),
            contents.repeated.iter().map(|repeated| (repeated.line.number, repeated.first)).collect(),
            contents.rejected.iter().map(|rejected| rejected.number).collect(),
        )
    }

    fn refused(bytes: &[u8]) -> String {
        format!("{:#}", contents(bytes).unwrap_err())
    }

    #[test]
    fn good_lines_are_kept_and_bad_ones_named_by_number_and_reason() {
        let read = of("42,A,2026-11,100,eur,pm_card_visa\n\n42,B,2026-11,1.00,eur,pm_card_visa\n42,C,2026-11\n");
        assert_eq!(numbers(&read), (vec![2], vec![], vec![4, 5]));
        assert!(read.rejected[0].sentence().starts_with("line 4: rejected: amount \"1.00\" must be whole minor units"));
        assert_eq!(read.rejected[1].row.len(), 3);
    }

    #[test]
    fn the_same_charge_twice_is_one_and_two_purchases_are_two() {
        let same = "42,A,2026-11,100,eur,pm_card_visa\n";
        let read = of(&format!("{same}{same}42,B,2026-11,100,eur,pm_card_visa\n{same}"));
        assert_eq!(numbers(&read), (vec![2, 4], vec![(3, 2), (5, 2)], vec![]));
    }

    #[test]
    fn rows_that_differ_about_one_charge_are_all_rejected() {
        let read = of(
            "42,A,2026-11,100,eur,pm_card_visa\n42,A,2026-11,200,eur,pm_card_visa\n42,A,2026-11,100,eur,pm_card_visa\n",
        );
        assert_eq!(numbers(&read), (vec![], vec![], vec![2, 3, 4]));
        assert!(read.rejected[0].reason.contains("also on line 3"), "{}", read.rejected[0].reason);
        assert!(read.rejected[1].reason.contains("also on line 2"), "{}", read.rejected[1].reason);
        let cards = of("42,A,2026-11,100,eur,pm_card_visa\n42,A,2026-11,100,eur,pm_card_other\n");
        assert_eq!(numbers(&cards), (vec![], vec![], vec![2, 3]));
    }

    #[test]
    fn a_bad_row_about_the_same_charge_disputes_it_whichever_comes_first() {
        let (good, bad) = ("42,A,2026-11,100,eur,pm_card_visa\n", "42,A,2026-11,1O0,eur,pm_card_visa\n");
        for rows in [format!("{good}{bad}"), format!("{bad}{good}"), format!("{good}{good}{bad}")] {
            let read = of(&rows);
            assert!(read.lines.is_empty() && read.repeated.is_empty(), "{rows}{:?}", numbers(&read));
        }
    }

    #[test]
    fn a_header_with_other_columns_is_refused_whole() {
        assert!(refused(b"").contains("lacks customer, invoice_line"));
        assert!(
            refused(b"customer;invoice_line;billing_period;amount;currency;payment_method\n")
                .contains("unknown columns")
        );
        assert!(
            refused(HEADER.replace("amount", "total").as_bytes())
                .contains("lacks amount and has unknown columns: \"total\"")
        );
        assert!(refused(HEADER.replace('\n', ",note\n").as_bytes()).contains("has unknown columns: \"note\""));
        let turned = "customer,invoice_line,billing_period,currency,amount,payment_method\n";
        assert!(refused(turned.as_bytes()).contains("in another order"));
    }

    #[test]
    fn what_a_spreadsheet_adds_is_no_fault() {
        let row = |line: &str| format!("\"42\",\"{line}\",2026-11,100,eur,pm_card_visa\n");
        let text = format!("\u{feff}{HEADER}{}\n\n{}x\n", row("A"), row("B")).replace('\n', "\r\n");
        let read = contents(text.as_bytes()).unwrap();
        assert_eq!(numbers(&read), (vec![2, 5], vec![], vec![6]));
    }

    #[test]
    fn a_quote_that_never_closes_charges_nobody_behind_it() {
        let read = of("42,\"A,2026-11,100,eur,pm_card_visa\n42,B,2026-11,100,eur,pm_card_visa\n");
        assert_eq!(numbers(&read), (vec![], vec![], vec![2]));
    }

    #[test]
    fn a_file_has_its_limit() {
        let row = "42,A,2026-11,100,eur,pm_card_visa\n";
        assert!(refused(format!("{HEADER}{}", row.repeat(ROWS_MAX + 1)).as_bytes()).contains("split the file"));
        assert_eq!(of(&row.repeat(ROWS_MAX)).repeated.len(), ROWS_MAX - 1);
    }
}
