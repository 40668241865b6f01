//! One resource's store, reflector and watchers together; all of them, started on first use.
