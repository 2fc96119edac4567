//! `checkout <role>` as a real child process: a kill is a real kill, a pause a real pause.

use std::{
    io::{BufRead, BufReader, Read},
    os::unix::process::CommandExt,
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Arc, Mutex, mpsc},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use checkout::stop::{STOP_ON_STDIN_EOF, Signal, send};

/// Generous: a test waits for an event, and this only bounds a hang.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A child that dies with its test: when it is dropped, or when the test process is gone and its stdin ends.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    /// Each line the child wrote to stdout, as it came.
    stdout: Mutex<mpsc::Receiver<String>>,
    stderr: Arc<Mutex<String>>,
    reader: Option<JoinHandle<()>>,
}

impl Process {
    /// A command for the program under test, free of the settings of whoever runs the tests.
    pub(crate) fn command(arguments: &[&str]) -> Command {
        let mut command = Command::new(super::CHECKOUT);
        command.args(arguments).env_remove("DATABASE_URL").env_remove("RUST_LOG");
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("CHECKOUT_") {
                command.env_remove(name);
            }
        }
        command
    }

    /// Starts a role on a free port and returns once it listens. Environment by name and value.
    pub(crate) fn role(role: &str, arguments: &[&str], environment: &[(&str, &str)]) -> (Self, String) {
        let mut command = Self::command(&[role, "--listen", "127.0.0.1:0"]);
        command.args(arguments).envs(environment.iter().copied());
        Self::listening(command)
    }

    /// Starts a role and returns once it listens, and where.
    pub(crate) fn listening(command: Command) -> (Self, String) {
        let process = Self::spawn(command);
        let url = process.line_with("listening on ").split_off("listening on ".len());
        (process, url)
    }

    pub(crate) fn spawn(mut command: Command) -> Self {
        super::on_watch();
        let mut child = command
            .env(STOP_ON_STDIN_EOF, "1")
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program under test");
        let (lines, stdout) = mpsc::channel();
        let out = BufReader::new(child.stdout.take().expect("a stdout"));
        std::thread::spawn(move || out.lines().map_while(Result::ok).try_for_each(|line| lines.send(line)));
        let stderr = Arc::new(Mutex::new(String::new()));
        let written = Arc::clone(&stderr);
        let mut err = BufReader::new(child.stderr.take().expect("a stderr"));
        let reader = std::thread::spawn(move || {
            let mut line = Vec::new();
            while err.by_ref().read_until(b'\n', &mut line).is_ok_and(|length| length > 0) {
                written.lock().expect("the reader's lock").push_str(&String::from_utf8_lossy(&line));
                line.clear();
            }
        });
        Self { child, stdout: Mutex::new(stdout), stderr, reader: Some(reader) }
    }

    /// Waits for a line on stdout that contains `text`.
    pub(crate) fn line_with(&self, text: &str) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.stdout.lock().expect("the only reader").recv_timeout(left) {
                Ok(line) if line.contains(text) => return line,
                Ok(_) => {}
                Err(_) => panic!("no `{text}` on stdout; stderr: {}", self.stderr()),
            }
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it has written to stdout, as far as nobody has waited for it.
    pub(crate) fn rest_of_stdout(&self) -> String {
        self.stdout.lock().expect("the only reader").try_iter().map(|line| line + "\n").collect()
    }

    /// What it has written to stderr so far.
    pub(crate) fn stderr(&self) -> String {
        self.stderr.lock().expect("the reader's lock").clone()
    }

    pub(crate) fn is_alive(&mut self) -> bool {
        self.child.try_wait().expect("wait").is_none()
    }

    /// `kill -9`: no goodbye, no flush, no rollback.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("kill");
        self.child.wait().expect("wait");
    }

    /// SIGSTOP: the process is there, and does nothing.
    pub(crate) fn pause(&self) {
        assert!(send(self.pid(), Signal::Stop), "pause {}", self.pid());
    }

    pub(crate) fn resume(&self) {
        assert!(send(self.pid(), Signal::Continue), "resume {}", self.pid());
    }

    /// SIGSTOP has struck, whoever sent it.
    pub(crate) fn is_paused(&self) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid())).unwrap_or_default();
        stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('T'))
    }

    /// How it ended, if it has.
    pub(crate) fn end(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("wait")
    }

    /// SIGTERM, and the status it ends with.
    pub(crate) fn stop(&mut self) -> ExitStatus {
        send(self.pid(), Signal::Terminate);
        self.ended()
    }

    /// Waits for its end. Its stderr is complete afterwards.
    pub(crate) fn ended(&mut self) -> ExitStatus {
        let mut status = None;
        wait_until("the process has ended", || {
            status = self.child.try_wait().expect("wait");
            status.is_some()
        });
        if let Some(reader) = self.reader.take() {
            reader.join().expect("the stderr reader");
        }
        status.expect("an exit status")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Ended already, perhaps: then there is nothing to kill.
        let _ended_already = self.child.kill();
        let _status_not_wanted = self.child.wait();
    }
}

/// An HTTP client that sends once, and waits for no answer for ever.
pub(crate) fn client() -> reqwest::Client {
    super::install_tls_provider();
    let client = reqwest::Client::builder().no_proxy().retry(reqwest::retry::never()).timeout(PATIENCE);
    client.build().expect("a client")
}

/// Polls until `holds`. Panics, naming what was awaited, when it does not come true.
pub(crate) fn wait_until(awaited: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "waited in vain until {awaited}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Is there such a process, other than as a zombie nobody has waited for?
pub(crate) fn is_running(pid: u32) -> bool {
    match std::fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat")) {
        Ok(stat) => !stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('Z')),
        Err(_) => false,
    }
}

/// [`wait_until`] for a question that has to be awaited itself.
pub(crate) async fn wait_for(awaited: &str, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds().await {
        assert!(Instant::now() < deadline, "waited in vain until {awaited}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
