//! Small readings of bytes that every room needs: words, checksums, ciphers, headers, tags.

pub mod checksum;
pub mod cipher;
pub mod headers;
pub mod tags;
pub mod word_offsets;
pub mod words;
