//! The operator's port: livez, readyz, metrics.
