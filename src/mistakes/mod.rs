//! The museum of mistakes. Question: what becomes of the same rooms when one thing is done wrong?
//!
//! Each piece is a small file that tells one wrong story, never a switch inside the right one. They are here to be measured,
//! broken and caught: the audit must say no to every one of them. A build for production has none of this.

pub mod no_keys;
