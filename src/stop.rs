//! How a process of ours is asked to stop, and how it hears it. Question: who may end a role, and what must it still do?
//!
//! A role stops on SIGTERM, on SIGINT, on the SIGHUP of a terminal that was closed and, when its parent asked for it, on the end of its standard input: the kernel
//! closes that pipe even when the parent was killed with no chance to say goodbye.

use std::{
    io::Read,
    process::{Command, Stdio},
};

use anyhow::Context;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// The parent sets this to `1` for children that must not outlive it.
pub const STOP_ON_STDIN_EOF: &str = "CHECKOUT_STOP_ON_STDIN_EOF";

/// What a second signal does: whoever sends it has waited long enough for a graceful end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Insisting {
    /// The process ends at once. What it claimed is taken over when its leases run out.
    EndsAtOnce,
    /// Nothing: what is looked after must not be left alone.
    IsInVain,
}

/// A token that is cancelled by the first request to stop. A second signal ends the process at once.
pub fn token() -> anyhow::Result<CancellationToken> {
    listening(Insisting::EndsAtOnce)
}

/// A token for whoever looks after something that would be left alone: a second signal changes nothing.
pub fn patient_token() -> anyhow::Result<CancellationToken> {
    listening(Insisting::IsInVain)
}

fn listening(insisting: Insisting) -> anyhow::Result<CancellationToken> {
    let stop = CancellationToken::new();
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
    let hang_up = if hang_up_is_ignored() {
        None
    } else {
        Some(signal(SignalKind::hangup()).context("cannot listen for SIGHUP")?)
    };
    let signalled = stop.clone();
    if let Some(mut hang_up) = hang_up {
        let signalled = stop.clone();
        tokio::spawn(async move {
            hang_up.recv().await;
            signalled.cancel();
        });
    }
    tokio::spawn(async move {
        for asked in 0.. {
            // As a shell tells the end by this signal.
            let code = tokio::select! {
                _ = terminate.recv() => 143,
                _ = interrupt.recv() => 130,
            };
            if asked > 0 && insisting == Insisting::EndsAtOnce {
                std::process::exit(code);
            }
            signalled.cancel();
        }
    });
    if std::env::var(STOP_ON_STDIN_EOF).is_ok_and(|value| value == "1") {
        cancel_on_stdin_eof(stop.clone());
    }
    Ok(stop)
}

/// Whoever starts us with `nohup` wants us to outlive the terminal; listening for the signal would undo that. Where there is
/// no `/proc`, nobody can tell, and the signal counts.
fn hang_up_is_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 == 1)
}

/// A thread of its own: a read of tokio's stdin cannot be cancelled and would hold up the end of the runtime.
pub fn cancel_on_stdin_eof(stop: CancellationToken) {
    std::thread::spawn(move || {
        let mut ignored = [0; 256];
        let mut stdin = std::io::stdin().lock();
        loop {
            match stdin.read(&mut ignored) {
                Ok(0) => break,
                Ok(_) => {}
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        stop.cancel();
    });
}

/// The signals we send to processes we started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    Terminate,
    Interrupt,
    HangUp,
    Quit,
    Kill,
    Stop,
    Continue,
}

/// Sends a signal; false when no such process is left. The shell's builtin does it: the standard library cannot, a
/// slim image has no `kill` program, and foreign calls are forbidden in this crate.
pub fn send(pid: u32, signal: Signal) -> bool {
    let name = match signal {
        Signal::Terminate => "TERM",
        Signal::Interrupt => "INT",
        Signal::HangUp => "HUP",
        Signal::Quit => "QUIT",
        Signal::Kill => "KILL",
        Signal::Stop => "STOP",
        Signal::Continue => "CONT",
    };
    Command::new("/bin/sh")
        .args(["-c", r#"kill -s "$1" "$2""#, "kill", name, &pid.to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}
