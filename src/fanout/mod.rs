//! Who is watching, where each one stands, and whom a change has to wake.
