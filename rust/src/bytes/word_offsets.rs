//! Where each word of a shared structure is, declared once and exported as data.
//!
//! Python's structs describe the same bytes to people; a test compares them with
//! `_core.word_offsets()`, which is made from what is declared here.

/// Declares a module of offsets: a constant for each word, and `ALL`, the table of them.
macro_rules! word_offsets {
    ($(#[$about:meta])* $visibility:vis mod $name:ident { $($word:ident = $at:expr,)* }) => {
        $(#[$about])*
        $visibility mod $name {
            #![allow(missing_docs, dead_code, reason = "a word may be for other readers alone")]
            $(pub const $word: usize = $at;)*
            pub const ALL: &[(&str, usize)] = &[$((stringify!($word), $at)),*];
        }
    };
}

pub(crate) use word_offsets;
