//! `kube-fanout-load`: the load generator alone, for machines without the gateway.

use std::{
    io::{self, Write},
    process::ExitCode,
};

use base::command_line;
use clap::Parser;
use kube_fanout_load::command::{self, LoadArgs};

/// Put load on an API server or a gateway, or on two in turns, and report the results. Exits with 3 if an assertion
/// fails.
#[derive(Debug, Parser)]
#[command(version)]
struct Cli {
    #[command(flatten)]
    args: LoadArgs,
}

fn main() -> ExitCode {
    command::run(Cli::parse().args).unwrap_or_else(|error| {
        // Standard error may be closed; there is no other place for it.
        io::stderr().write_all(command_line::report(&error).as_bytes()).ok();
        error.chain().find_map(command::exit_code).map_or(ExitCode::FAILURE, ExitCode::from)
    })
}
