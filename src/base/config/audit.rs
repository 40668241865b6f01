//! The audit log: `audit`.

use std::path::PathBuf;

use crate::config::fields::{ANY_FILE, Fields, Maybe, Words, about};

const MODES: Words<AuditMode> = Words(&[("blocking", AuditMode::Blocking), ("bestEffort", AuditMode::BestEffort)]);

/// The audit log of requests that the gateway itself answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditConfig {
    /// The file that events are appended to; `-` is standard output. `None`: no audit log.
    pub path: Option<PathBuf>,
    pub mode: AuditMode,
}

/// What happens to a read whose event cannot be written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AuditMode {
    /// It is forwarded, not served from memory.
    #[default]
    Blocking,
    /// It is served from memory.
    BestEffort,
}

impl AuditConfig {
    pub(super) fn fields(&mut self, fields: &mut Fields<'_>) {
        let text = about("a file, or `-` for standard output").default("none: no audit log");
        fields.value("path", text, &mut self.path, &Maybe(ANY_FILE));
        let text = "whether reads that cannot be logged are forwarded (`blocking`) or served from memory all the same; \
                    needs `audit.path`";
        fields.value("mode", about(text), &mut self.mode, &MODES);
        if fields.is_given("mode") && !fields.is_given("path") {
            fields.problem("mode", "needs audit.path", "set audit.path, or remove this field");
        }
    }
}
