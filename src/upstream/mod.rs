//! The API server behind the gateway: the only module that opens outbound connections.
