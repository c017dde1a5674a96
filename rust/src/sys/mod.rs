//! The only folder with `unsafe`: mapping, futex, locks by open file description, the SIGBUS
//! guard, the clock. Everything here is a small safe wrapper around one kernel promise.
#![allow(unsafe_code)]

pub mod capsule;
pub mod clock;
pub mod crc;
pub mod descriptor;
pub mod eventfd;
pub mod files;
pub mod fork;
pub mod futex;
pub mod guarded;
pub mod lockfile;
pub mod mapping;
pub mod memory;
pub mod recorder;
pub mod reuse;
pub mod sigbus;
pub mod thread_priority;
pub mod view;
