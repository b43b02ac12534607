//! One per cluster: keeps what nodes are for, what they say and what they advertise in step.
