//! The request path: parse, authenticate, authorize, decide, serve or forward, respond.
