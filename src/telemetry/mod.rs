//! Names of every metric, and the access log line.
