//! An embedded API server, in memory: upstream of the demo and of the hermetic tests.
