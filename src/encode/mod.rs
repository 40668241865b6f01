//! Bytes of one list, one event, one bookmark. Knows nothing of who reads them.
