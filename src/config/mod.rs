//! Configuration: raw YAML in, a validated configuration or every problem at once out.
