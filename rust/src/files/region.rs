//! Every effect on a file goes through here or through `Mapping`, where a crash test can have it
//! recorded (`sys::recorder`).

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{
    DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown,
};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, Weak};

use crate::errors::{located, located_file, path_of};
use crate::sys::descriptor::above_standard;
use crate::sys::recorder::{self, Effect, record, sync_fault};
use crate::sys::{files, fork};

/// Those who have a queue open in this process: each is told of every sync that fails.
pub trait Poisoned: Send + Sync {
    /// A sync of the file or folder at `path`, which is absolute, has failed.
    fn sync_failed(&self, path: &Path);
}

static TOLD: Mutex<Vec<Weak<dyn Poisoned>>> = Mutex::new(Vec::new());

/// From now on `whom` is told of failed syncs.
pub fn tell_of_failed_syncs(whom: Weak<dyn Poisoned>) {
    fork::between_forks(|| {
        let mut told = TOLD.lock().unwrap_or_else(|e| e.into_inner());
        told.retain(|one| one.strong_count() > 0);
        told.push(whom);
    });
}

/// What the kernel failed to write it may have forgotten: nobody may rely on a later sync that
/// succeeds. No caller can forget to say so, since every sync is one of the two below.
#[cold]
fn sync_failed(path: &Path) {
    let told = fork::between_forks(|| TOLD.lock().unwrap_or_else(|e| e.into_inner()).clone());
    told.iter().filter_map(Weak::upgrade).for_each(|one| one.sync_failed(path));
}

/// Whether `path` leads to this open file, and not to another one that has its name by now.
pub fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let (ours, there) = (file.metadata()?, std::fs::symlink_metadata(path));
    let there = there.map_err(|error| located(error, path))?;
    Ok((ours.dev(), ours.ino()) == (there.dev(), there.ino()))
}

/// The file's number on its device.
pub fn inode(file: &File) -> io::Result<u64> {
    recorder::inode(file).map_err(|error| located_file(error, file))
}

/// Who may use a new file or folder, from the one that it is made in, or made beside.
pub struct Owner {
    user: u32,
    group: u32,
    /// Its group works with it, and not everyone does: members share what is in it.
    is_shared: bool,
    is_public: bool,
}

impl Owner {
    /// As the file or folder at `path` says.
    pub fn of(path: &Path) -> io::Result<Self> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let found = std::fs::metadata(path).map_err(|error| located(error, path))?;
        let writers = found.mode() & 0o022;
        Ok(Self {
            user: found.uid(),
            group: found.gid(),
            is_shared: writers == 0o020,
            is_public: writers & 0o002 != 0,
        })
    }

    /// Gives `file` to those users. Root, by `sudo` or from a timer, must not lock the owner out;
    /// another user can only give a file to a group of which they are a member; else it stays
    /// theirs.
    pub fn take(&self, file: &File, mode: u32) -> io::Result<()> {
        let found = file.metadata()?;
        let is_root = crate::sys::files::is_root();
        if is_root && !self.is_public && (found.uid(), found.gid()) != (self.user, self.group) {
            fchown(file, Some(self.user), Some(self.group))?;
        } else if self.is_shared && found.gid() != self.group {
            let _ = fchown(file, None, Some(self.group));
        }
        // Not by the mode of the call that made it: that is subject to the process's umask.
        let mode = if self.is_shared { mode | (mode & 0o700) >> 3 } else { mode };
        if found.mode() & 0o777 != mode {
            file.set_permissions(PermissionsExt::from_mode(mode))?;
        }
        Ok(())
    }
}

/// Creates a file that must not exist yet. It belongs to whom its folder belongs to; nobody else
/// may read it (0600), apart from the folder's group where that may write there (0660).
pub fn create(path: &Path) -> io::Result<File> {
    let make = || -> io::Result<File> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW)
            .open(path)
            .and_then(above_standard)?;
        if let Some(folder) = path.parent() {
            Owner::of(folder)?.take(&file, 0o600)?;
        }
        Ok(file)
    };
    let file = make().map_err(|error| located(error, path))?;
    record(|| Ok(Effect::Create(path.to_path_buf(), inode(&file)?)))?;
    Ok(file)
}

/// Makes a folder that must not exist yet: its owner's alone (0700), or like the file or folder
/// `like`, whose owner it gets then.
pub fn make_folder(path: &Path, like: Option<&Path>) -> io::Result<()> {
    let make = || -> io::Result<()> {
        std::fs::DirBuilder::new().mode(0o700).create(path)?;
        let folder = open_new_folder(path)?;
        match (like, path.parent()) {
            (Some(like), _) => Owner::of(like)?.take(&folder, 0o700),
            (None, Some(above)) => {
                Owner { is_shared: false, ..Owner::of(above)? }.take(&folder, 0o700)
            }
            (None, None) => Ok(()),
        }
    };
    make().map_err(|error| located(error, path))
}

fn open_folder(path: &Path) -> io::Result<File> {
    let flags = libc::O_NOFOLLOW | libc::O_DIRECTORY;
    OpenOptions::new().read(true).custom_flags(flags).open(path)
}

/// Opens a folder that we just made: the process's umask may have left us no right to it.
fn open_new_folder(path: &Path) -> io::Result<File> {
    match open_folder(path) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            let flags = libc::O_PATH | libc::O_NOFOLLOW | libc::O_DIRECTORY;
            let named = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
            let same = format!("/proc/self/fd/{}", named.as_raw_fd());
            std::fs::set_permissions(same, PermissionsExt::from_mode(0o700))?;
            open_folder(path)
        }
        other => other,
    }
}

/// Opens an existing file. Never follows a link, and never waits: what is no ordinary file (a pipe
/// that nobody writes to, a device) is refused, and so is writing to a file that somebody else may
/// have linked here.
pub fn open(path: &Path, writable: bool) -> io::Result<File> {
    let open = || -> io::Result<File> {
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
        let mut options = OpenOptions::new();
        options.read(true).write(writable).custom_flags(flags);
        let file = options.open(path).and_then(above_standard)?;
        let found = file.metadata()?;
        if !found.is_file() {
            return Err(io::Error::other("this is no ordinary file"));
        }
        if writable && found.nlink() > 1 && is_open_to_others(path)? {
            return Err(io::Error::other(TWO_NAMES));
        }
        Ok(file)
    };
    open().map_err(|error| located(error, path))
}

const TWO_NAMES: &str = "this file has a second name elsewhere, and users other than you may have \
     given it this one; put a copy in its place (`cp -p FILE COPY && mv COPY FILE`)";

/// Whether someone else may make names in the folder of `path`. In a folder of our own we made each
/// name ourselves, and `cp -l` makes second ones.
fn is_open_to_others(path: &Path) -> io::Result<bool> {
    let folder = Owner::of(path.parent().unwrap_or(path))?;
    let is_ours = folder.user == crate::sys::files::user();
    Ok(!is_ours || folder.is_shared || folder.is_public)
}

/// Opens, or creates when missing.
pub fn open_or_create(path: &Path) -> io::Result<File> {
    match open(path, true) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => match create(path) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => open(path, true),
            other => other,
        },
        other => other,
    }
}

/// Gives the file `len` bytes that really exist, so that a full disk is an error here and never
/// a signal later.
pub fn allocate(file: &File, len: u64) -> io::Result<()> {
    let of_file = |error| located_file(error, file);
    let size = file.metadata().map_err(of_file)?.len();
    if size >= len {
        return Ok(());
    }
    crate::sys::files::allocate(file, size, len - size).map_err(of_file)?;
    record(|| Ok(Effect::Grow(inode(file)?, len)))
}

/// Makes the file `len` bytes long by writing zeros. A page that was written once costs a store
/// through a mapping a sixth of what one that was only allocated costs, and a full disk is an
/// error here too.
pub fn extend(file: &File, len: u64) -> io::Result<()> {
    static ZEROS: [u8; 64 << 10] = [0; 64 << 10];
    let of_file = |error| located_file(error, file);
    let mut at = file.metadata().map_err(of_file)?.len();
    if at >= len {
        return Ok(());
    }
    while at < len {
        let part = usize::try_from(len - at).unwrap_or(usize::MAX).min(ZEROS.len());
        file.write_all_at(ZEROS.get(..part).unwrap_or_default(), at).map_err(of_file)?;
        at += part as u64;
    }
    record(|| Ok(Effect::Grow(inode(file)?, len)))
}

/// Writes all of `bytes` at `at`.
pub fn write_at(file: &File, at: u64, bytes: &[u8]) -> io::Result<()> {
    file.write_all_at(bytes, at).map_err(|error| located_file(error, file))?;
    record(|| {
        let start = usize::try_from(at).map_err(|_| io::ErrorKind::InvalidInput)?;
        Ok(Effect::Store(inode(file)?, start, bytes.to_vec()))
    })
}

/// Writes zeros where there is nothing, so that there are pages: no byte changes. A file that was
/// cut short is not made longer again.
pub fn fill_zeros(file: &File, at: u64, zeros: &[u8]) {
    let end = at.saturating_add(zeros.len() as u64);
    if len(file).is_ok_and(|len| len >= end) {
        let _ = file.write_all_at(zeros, at);
    }
}

/// Cuts or extends the file.
pub fn set_len(file: &File, len: u64) -> io::Result<()> {
    file.set_len(len).map_err(|error| located_file(error, file))?;
    record(|| Ok(Effect::Grow(inode(file)?, len)))
}

/// How many bytes the file has.
pub fn len(file: &File) -> io::Result<u64> {
    files::names_and_len(file).map(|(_, len)| len)
}

/// An error if the file has no name any more: whatever is written to it goes when it is closed.
pub fn check_named(file: &File) -> io::Result<()> {
    match files::names_and_len(file)?.0 {
        0 => Err(io::Error::from_raw_os_error(libc::ESTALE)),
        _ => Ok(()),
    }
}

/// Bytes and length to the disk. A failure poisons the queue that the file is of.
pub fn sync(file: &File) -> io::Result<()> {
    let synced = sync_fault().and_then(|()| file.sync_data());
    synced.map_err(|error| {
        sync_failed(&path_of(file));
        located_file(error, file)
    })?;
    record(|| Ok(Effect::Sync(inode(file)?)))
}

/// Begins to write bytes to the disk, and does not wait for them: no promise, a sync still has to
/// follow, and which reports the errors. The kernel may do the same at any time.
pub fn begin_writing(file: &File, at: u64, len: u64) {
    crate::sys::files::begin_writing(file, at, len);
}

/// A folder's names to the disk. A failure poisons the queue that it is of, and those whose own
/// names are in it.
pub fn sync_folder(path: &Path) -> io::Result<()> {
    let synced = sync_fault().and_then(|()| File::open(path)?.sync_all());
    synced.map_err(|error| {
        sync_failed(&std::fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf()));
        located(error, path)
    })?;
    record(|| Ok(Effect::SyncFolder(path.to_path_buf())))
}

/// Moves a name over another.
pub fn rename(from: &Path, to: &Path) -> io::Result<()> {
    std::fs::rename(from, to).map_err(|error| {
        let is_source = error.kind() == io::ErrorKind::NotFound && !from.exists();
        located(error, if is_source { from } else { to })
    })?;
    record(|| Ok(Effect::Rename(from.to_path_buf(), to.to_path_buf())))
}

/// Removes a name.
pub fn unlink(path: &Path) -> io::Result<()> {
    std::fs::remove_file(path).map_err(|error| located(error, path))?;
    record(|| Ok(Effect::Unlink(path.to_path_buf())))
}

/// Replaces the file `path` by `bytes`: temporary file, sync, rename, sync of the folder.
pub fn replace(path: &Path, bytes: &[u8], synced: bool) -> io::Result<()> {
    // The name is random: another process that replaces the same file now has another one, also in
    // another container, where processes have the same numbers, and also after one that died and
    // whose number is given out again. The kernel's own chance: any other is the same in all forks.
    let process = std::process::id();
    let chance =
        getrandom::u64().map_err(|_| located(io::Error::other("no random bytes"), path))?;
    let mut temporary = path.as_os_str().to_os_string();
    temporary.push(format!(".{process:x}-{chance:x}.tmp"));
    let temporary = PathBuf::from(temporary);
    let file = create(&temporary)?;
    let written =
        write_at(&file, 0, bytes).and_then(|()| if synced { sync(&file) } else { Ok(()) });
    if let Err(error) = written.and_then(|()| rename(&temporary, path)) {
        // The file is as it was; what can't be removed now goes when the queue is opened.
        let _ = unlink(&temporary);
        return Err(error);
    }
    match path.parent() {
        Some(folder) if synced => sync_folder(folder),
        _ => Ok(()),
    }
}
