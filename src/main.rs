//! The command line. Wires, and does not think.

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::{Parser, Subcommand};
use kube_fanout::config::{Config, LoadError, Overrides};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A watch cache and fan-out gateway in front of a Kubernetes API server.
#[derive(Debug, Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Look for problems in a configuration, and name all of them.
    Check {
        /// The configuration file.
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
    },
}

/// What `check` ends with when there are problems.
const EXIT_INVALID: u8 = 2;

fn main() -> anyhow::Result<ExitCode> {
    match Cli::parse().command {
        Command::Check { config } => check(&config),
    }
}

fn check(path: &Path) -> anyhow::Result<ExitCode> {
    match Config::load(Some(path), &Overrides::default()) {
        Ok(_) => {
            writeln!(io::stdout(), "{}: no problems", path.display())?;
            Ok(ExitCode::SUCCESS)
        }
        Err(LoadError::Invalid(problems)) => {
            writeln!(io::stderr(), "{problems}")?;
            Ok(ExitCode::from(EXIT_INVALID))
        }
        Err(LoadError::Read { path, source }) => {
            writeln!(io::stderr(), "{}: {source}", path.display())?;
            Ok(ExitCode::from(EXIT_INVALID))
        }
    }
}
