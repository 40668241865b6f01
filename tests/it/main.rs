//! Hermetic integration tests: the library as a whole, without a cluster. One binary, for link time.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod tidy;
