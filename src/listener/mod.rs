//! Sockets, TLS, connection limits, draining. Hands requests to a handler it is given.
