//! One resource's state in one encoding: immutable snapshots, bounded history, one writer and many readers.
