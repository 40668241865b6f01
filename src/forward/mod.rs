//! Answers from upstream: the request goes through as it came.
