//! What the binaries have in common: exit codes, and how they print results and errors.

use std::{
    io::{self, Write},
    process::ExitCode,
    time::Duration,
};

use crate::config::Redacted;

/// The exit codes, the same for all subcommands, as the manual's chapter `operations` describes them. Arguments, a
/// configuration or a profile are wrong; also the code of clap.
pub const EXIT_MISUSE: u8 = 2;
/// The answer is no: an assertion of `load` fails, or the gateway of `status` is not ready.
pub const EXIT_NO: u8 = 3;
/// `load` may not be put on the cluster.
pub const EXIT_REFUSED: u8 = 4;
/// No server, or no gateway, answers.
pub const EXIT_UNREACHABLE: u8 = 5;
/// `load` was interrupted: as the shell counts a SIGINT.
pub const EXIT_INTERRUPTED: u8 = 130;
/// The maximum time for blocking calls at the end, so that a resolver that does not answer does not keep the process
/// alive.
pub const RUNTIME_END: Duration = Duration::from_secs(1);

/// An error with its causes, without the backtrace that anyhow adds: it is about a configuration or a machine.
pub fn report(error: &anyhow::Error) -> String {
    let causes: Vec<_> = error.chain().skip(1).map(|cause| cause.to_string().replace('\n', "\n    ")).collect();
    without_passwords(match &causes[..] {
        [] => format!("Error: {error}\n"),
        causes => format!("Error: {error}\n\nCaused by:\n    {}\n", causes.join("\n    ")),
    })
}

/// Prints to standard output, whose reader may have closed it.
///
/// # Errors
/// Standard output cannot be written to.
pub fn print(text: &str) -> anyhow::Result<ExitCode> {
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// A text without the passwords of URLs among the arguments, which many errors quote: as the name of a file, for
/// example.
pub fn without_passwords(text: String) -> String {
    let arguments = std::env::args_os().filter_map(|argument| argument.into_string().ok());
    arguments.fold(text, |text, argument| {
        let values = [Some(argument.as_str()), argument.split_once('=').map(|(_, value)| value)];
        values
            .into_iter()
            .flatten()
            .filter(|value| may_have_password(value))
            .fold(text, |text, value| text.replace(value, &Redacted::text(value).to_string()))
    })
}

fn may_have_password(text: &str) -> bool {
    text.rsplit_once('@').is_some_and(|(before, _)| before.contains(':'))
}
