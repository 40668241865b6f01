//! Answers from memory, for whoever holds a permit.
