//! Whether they may: from a user and a request to a permit, or not.
