//! Who asks: from a connection and its headers to a user.
