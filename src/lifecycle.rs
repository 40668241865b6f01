//! Shutdown signal, drain phases and the task tracker that drain waits for.
