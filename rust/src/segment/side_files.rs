//! What lies beside a segment: extras and checksums, where its format has no place for them.
//!
//! Files are named by the offset where the segment, or in a ring the lap, begins.

use std::io;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, RwLock};

use crate::segment::extras::Extras;
use crate::segment::frame::{Draft, Fault, FrameView, Place};
use crate::segment::integrity::{Checked, Cover, Integrity};
use crate::shared::control::Control;

/// Laps that stay open.
const OPEN_LAPS: usize = 4;

/// A file beside a segment.
trait Side: Sized {
    const SUFFIX: &'static str;
    /// Whether a file that was not there once may be taken for missing from then on.
    const IS_OPTIONAL: bool;
    fn open(path: &Path, base: u64, writable: bool, make: bool) -> io::Result<Option<Self>>;
}

impl Side for Extras {
    const SUFFIX: &'static str = "ext";
    const IS_OPTIONAL: bool = false;
    fn open(path: &Path, base: u64, writable: bool, make: bool) -> io::Result<Option<Self>> {
        Self::open(path, base, writable, make)
    }
}

impl Side for Integrity {
    const SUFFIX: &'static str = "crc";
    const IS_OPTIONAL: bool = true;
    fn open(path: &Path, base: u64, writable: bool, make: bool) -> io::Result<Option<Self>> {
        Self::open(path, base, writable, make)
    }
}

/// A file of those below: the only one as it is, or a lap's for as long as it is in use.
enum FileRef<'a, F> {
    Only(&'a F),
    Lap(Arc<F>),
}

impl<F> Deref for FileRef<'_, F> {
    type Target = F;
    #[inline]
    fn deref(&self) -> &F {
        match self {
            Self::Only(file) => file,
            Self::Lap(file) => file,
        }
    }
}

/// The files of one kind: one for a plain segment, one per lap of a ring.
struct Laps<F> {
    folder: PathBuf,
    base: u64,
    /// Bytes of a lap; 0: no ring.
    span: u64,
    writable: bool,
    /// Whether missing files are made.
    makes: bool,
    only: Option<F>,
    open: RwLock<Vec<(u64, Arc<F>)>>,
    /// The lap that was looked for last and has no file.
    absent: AtomicU64,
}

impl<F: Side> Laps<F> {
    fn new(folder: PathBuf, base: u64, span: u64, writable: bool, makes: bool) -> io::Result<Self> {
        let open = RwLock::new(Vec::new());
        let mut laps =
            Self { folder, base, span, writable, makes, only: None, open, absent: u64::MAX.into() };
        if span == 0 {
            laps.only = laps.file(base)?;
        }
        Ok(laps)
    }

    fn file(&self, base: u64) -> io::Result<Option<F>> {
        let path = self.folder.join(format!("{base:020}.{}", F::SUFFIX));
        F::open(&path, base, self.writable, self.makes)
    }

    /// The file that `offset` belongs to, made when missing if `make` says so.
    #[inline]
    fn at(&self, offset: u64, make: bool) -> io::Result<Option<FileRef<'_, F>>> {
        if self.span == 0 {
            return Ok(self.only.as_ref().map(FileRef::Only));
        }
        Ok(self.lap_at(offset, make)?.map(FileRef::Lap))
    }

    fn lap_at(&self, offset: u64, make: bool) -> io::Result<Option<Arc<F>>> {
        let lap = self.base + offset.saturating_sub(self.base) / self.span * self.span;
        let open = self.open.read().unwrap_or_else(|e| e.into_inner());
        if let Some((_, file)) = open.iter().find(|(base, _)| *base == lap) {
            return Ok(Some(Arc::clone(file)));
        }
        drop(open);
        let is_known_absent = F::IS_OPTIONAL && self.absent.load(Ordering::Relaxed) == lap;
        if is_known_absent && !(make && self.makes) {
            return Ok(None);
        }
        let missing = !self.folder.join(format!("{lap:020}.{}", F::SUFFIX)).exists();
        if missing && !(make && self.makes) {
            self.absent.store(lap, Ordering::Relaxed);
            return Ok(None);
        }
        let Some(file) = self.file(lap)?.map(Arc::new) else { return Ok(None) };
        let mut open = self.open.write().unwrap_or_else(|e| e.into_inner());
        open.insert(0, (lap, Arc::clone(&file)));
        open.truncate(OPEN_LAPS);
        Ok(Some(file))
    }

    /// Where the file ends that `offset` belongs to.
    fn end_of(&self, offset: u64) -> u64 {
        match offset.saturating_sub(self.base).checked_div(self.span) {
            None => u64::MAX,
            Some(lap) => self.base.saturating_add((lap + 1).saturating_mul(self.span)),
        }
    }

    fn each(&self, mut act: impl FnMut(&F) -> io::Result<()>) -> io::Result<()> {
        if let Some(only) = &self.only {
            act(only)?;
        }
        let open = self.open.read().unwrap_or_else(|e| e.into_inner());
        open.iter().try_for_each(|(_, file)| act(file))
    }
}

/// Extras and checksums of one segment.
pub struct SideFiles {
    extras: Option<Laps<Extras>>,
    integrity: Option<Laps<Integrity>>,
    /// Whether frames that are appended get checksums.
    covers: bool,
}

impl SideFiles {
    /// The files in these folders for the segment that begins at `base`. `covers` says whether
    /// appended frames get checksums; those that have one are checked in any case.
    pub fn new(
        extras: Option<PathBuf>,
        integrity: Option<PathBuf>,
        base: u64,
        span: u64,
        writable: bool,
        covers: bool,
    ) -> io::Result<Self> {
        let extras =
            extras.map(|folder| Laps::new(folder, base, span, writable, writable)).transpose()?;
        let makes = writable && covers;
        let integrity =
            integrity.map(|folder| Laps::new(folder, base, span, writable, makes)).transpose()?;
        Ok(Self { extras, integrity, covers: makes })
    }

    #[inline]
    fn extras_at(&self, offset: u64) -> Option<FileRef<'_, Extras>> {
        self.extras.as_ref()?.at(offset, false).ok().flatten()
    }

    #[inline]
    fn integrity_at(&self, offset: u64) -> Option<FileRef<'_, Integrity>> {
        self.integrity.as_ref()?.at(offset, false).ok().flatten()
    }

    /// Judges a frame that was found, and gives it what was noted for it.
    #[inline]
    pub fn judge(
        &self,
        frame: &[u8],
        position: usize,
        offset: u64,
        view: &mut FrameView,
    ) -> Result<(), Fault> {
        if let Some(integrity) = self.integrity_at(offset) {
            integrity.check(offset, position, frame)?;
        }
        if let Some(extras) = self.extras_at(offset).filter(|extras| !extras.is_empty()) {
            extras.apply(offset, frame, view);
        }
        Ok(())
    }

    /// Whether a checksum covers the frame at `offset`.
    pub fn is_covered(&self, offset: u64) -> bool {
        self.integrity_at(offset)
            .is_some_and(|integrity| !matches!(integrity.cover(offset), Cover::None))
    }

    /// Where the next covered frame after `offset` begins.
    pub fn next_after(&self, offset: u64) -> Option<u64> {
        self.integrity_at(offset)?.next_after(offset)
    }

    /// Before the frames are copied: notes what they can't hold. With `synced`, the queue whose
    /// every put is synced, it is on the disk when this returns.
    #[inline]
    pub fn note_extras(
        &self,
        drafts: &[Draft<'_>],
        sizes: &[usize],
        first: Place,
        synced: Option<&Control>,
    ) -> io::Result<()> {
        let Some(laps) = &self.extras else { return Ok(()) };
        let has_nothing = |draft: &Draft<'_>| draft.key.is_empty() && draft.due_ns == 0;
        let is_below = |only: &Extras| only.is_below(first.offset);
        if laps.only.as_ref().is_some_and(is_below) && drafts.iter().all(has_nothing) {
            return Ok(());
        }
        let mut place = first;
        let mut placed = drafts
            .iter()
            .zip(sizes)
            .map(|(draft, size)| {
                let here = place;
                let offset = here.offset + *size as u64;
                place = Place { offset, number: here.number + 1, ..here };
                (draft, here)
            })
            .peekable();
        // A list may go on in the next lap: each lap's file has what is in it.
        while let Some(start) = placed.peek().map(|(_, place)| place.offset) {
            let end = laps.end_of(start);
            let lap = std::iter::from_fn(|| placed.next_if(|(_, place)| place.offset < end));
            // A lap always has its file: readers then need no look at the folder.
            let Some(extras) = laps.at(start, true)? else { return Ok(()) };
            if let (true, Some(control)) = (extras.append(start, lap)?, synced) {
                control.sync(|| extras.sync())?;
            }
        }
        Ok(())
    }

    /// After the frames are in place and before they are published: notes their checksums. `frame`
    /// gives the bytes of one, by its offset and its size.
    #[inline]
    pub fn note_checksums<'a>(
        &self,
        frame: impl Fn(u64, usize) -> &'a [u8],
        sizes: &[usize],
        first: u64,
    ) -> io::Result<()> {
        let Some(laps) = &self.integrity else { return Ok(()) };
        if !self.covers {
            // Notes of an append that never happened must not be applied to the one that does.
            if let Some(integrity) = laps.at(first, false)? {
                integrity.append(first, std::iter::empty())?;
            }
            return Ok(());
        }
        let mut offset = first;
        let mut rest = sizes;
        while !rest.is_empty() {
            let (start, end) = (offset, laps.end_of(offset));
            let mut at = start;
            let inside = rest.iter().take_while(|size| {
                let is_inside = at < end;
                at += **size as u64;
                is_inside
            });
            let (lap, later) = rest.split_at(inside.count().max(1));
            rest = later;
            let Some(integrity) = laps.at(start, true)? else { return Ok(()) };
            let entries = lap.iter().map(|size| {
                let entry = Checked::of(offset, frame(offset, *size));
                offset += *size as u64;
                entry
            });
            integrity.append(start, entries)?;
        }
        Ok(())
    }

    /// Where checksums end in the file of `tail`.
    pub fn covered_end(&self, tail: u64) -> Option<u64> {
        self.integrity_at(tail)?.end()
    }

    /// After an unclean end: nothing at or above `tail` counts.
    pub fn forget(&self, tail: u64) -> io::Result<()> {
        if let Some(extras) = &self.extras {
            extras.at(tail, false)?;
            extras.each(|file| {
                file.rewind(tail);
                file.sync()
            })?;
        }
        if let Some(integrity) = &self.integrity {
            integrity.at(tail, false)?;
            integrity.each(|file| {
                file.recover(tail);
                file.sync(false)
            })?;
        }
        Ok(())
    }

    /// The byte of the extras file from which on records do not check.
    pub fn extras_fault(&self) -> Option<(PathBuf, usize)> {
        let laps = self.extras.as_ref()?;
        let mut found = None;
        let name = |base: u64| laps.folder.join(format!("{base:020}.{}", Extras::SUFFIX));
        if let Some(at) = laps.only.as_ref().and_then(|only| only.fault()) {
            found = Some((name(laps.base), at));
        }
        let open = laps.open.read().unwrap_or_else(|e| e.into_inner());
        for (base, file) in open.iter() {
            found = found.or_else(|| file.fault().map(|at| (name(*base), at)));
        }
        found
    }

    /// Syncs what is beside the segment; checksums lazily where every put waits for its sync.
    pub fn sync(&self, lazily: bool) -> io::Result<()> {
        if let Some(extras) = self.extras.as_ref().filter(|_| !lazily) {
            extras.each(|file| if file.is_empty() { Ok(()) } else { file.sync() })?;
        }
        if let Some(integrity) = &self.integrity {
            integrity.each(|file| file.sync(lazily))?;
        }
        Ok(())
    }
}
