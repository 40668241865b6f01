//! Keeps one store equal to upstream: a pure list/watch state machine and the loop that drives it.
