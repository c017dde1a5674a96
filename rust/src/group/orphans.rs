//! Groups that no opener of ours has open: their own may have been killed before it synced them.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::MAGIC;
use super::table::at;
use crate::bytes::words::{u32_le, u64_le};
use crate::files::region;
use crate::shared::lock::holder_of;
use crate::shared::protocol;

/// So much of a table is read.
const HEADER_BYTES: usize = 512;

/// What the next sync of a group changes.
type Mark = (u64, u64, u64);

/// Groups that were unsynced at the last look. They are only looked at, by a read of their table's
/// first words and without their lock: what stays as it is until the next look nobody else syncs.
pub struct Unsynced {
    folder: PathBuf,
    boot: u64,
    marks: HashMap<OsString, Mark>,
}

impl Unsynced {
    /// For the groups in `folder`, whose tables are of the run `boot`.
    pub fn new(folder: PathBuf, boot: u64) -> Self {
        Self { folder, boot, marks: HashMap::new() }
    }

    /// Whether the last look found any that may be their own opener's yet.
    pub fn is_any(&self) -> bool {
        !self.marks.is_empty()
    }

    /// The names of those that were the same at the last look, or can't be looked at. `is_ours` are
    /// those that this process syncs anyway; nor does a group count that a live process syncs just
    /// now.
    pub fn look(
        &mut self,
        is_ours: impl Fn(&OsStr) -> bool,
        is_alive: impl Fn(u32) -> bool,
    ) -> std::io::Result<Vec<OsString>> {
        let before = std::mem::take(&mut self.marks);
        let entries = match std::fs::read_dir(&self.folder) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut stuck = Vec::new();
        for entry in entries {
            let name = entry?.file_name();
            if is_ours(&name) {
                continue;
            }
            let (mark, syncer) = match mark_of(&self.folder.join(&name), self.boot) {
                Ok(Some(found)) => found,
                Ok(None) => continue,
                Err(_) => {
                    // Opening it says what is wrong; the others must not wait for that.
                    stuck.push(name);
                    continue;
                }
            };
            if syncer != 0 && is_alive(syncer) {
                continue;
            }
            match before.get(&name) == Some(&mark) {
                true => stuck.push(name),
                false => drop(self.marks.insert(name, mark)),
            }
        }
        Ok(stuck)
    }
}

/// With who syncs it just now, or 0. None: all that was acked is synced, or that is unknown.
fn mark_of(folder: &Path, boot: u64) -> std::io::Result<Option<(Mark, u32)>> {
    let mut raw = [0; HEADER_BYTES];
    let read = |file: File| file.read_exact_at(&mut raw, 0);
    match region::open(&folder.join("table"), false).and_then(read) {
        Ok(()) => {}
        Err(error) => {
            let kinds = [ErrorKind::NotFound, ErrorKind::NotADirectory, ErrorKind::UnexpectedEof];
            return if kinds.contains(&error.kind()) { Ok(None) } else { Err(error) };
        }
    }
    let wide = |at| u64_le(&raw, at).unwrap_or_default();
    if wide(at::MAGIC) != MAGIC || wide(at::BOOT) != boot {
        return Ok(None);
    }
    let synced_next = wide(at::SYNCED_NEXT); // 0: the journal has everything.
    let is_ahead = synced_next != 0 && synced_next != wide(at::NEXT);
    let is_asked = protocol::is_asked(u32_le(&raw, at::SYNC_ASKED).unwrap_or_default());
    let is_behind = wide(at::JOURNAL_END) != wide(at::JOURNAL_SYNCED);
    let mark = (wide(at::JOURNAL_NAME), wide(at::JOURNAL_SYNCED), synced_next);
    let syncer = holder_of(u32_le(&raw, at::SYNC_LOCK).unwrap_or_default());
    Ok((is_ahead || is_asked || is_behind).then_some((mark, syncer)))
}
