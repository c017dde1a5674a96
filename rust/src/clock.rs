//! Time as a value: the machine's clocks, or a test's.

use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyInt;

use crate::errors;
use crate::sys::clock;

/// What time it is. Shared by everything that one queue opens.
#[pyclass(frozen, module = "penstock._core")]
pub struct Clock {
    is_manual: bool,
    wall_ns: AtomicI64,
    boot_ns: AtomicI64,
    boot_id: AtomicU64,
    /// The kernel's last tick, and what the boot clock was when it was first seen.
    tick: AtomicI64,
    boot_at_tick: AtomicI64,
}

impl Clock {
    /// The time of `boot_lately` is at most so old: a tick comes every 1 to 10 ms, and the rest
    /// allows for a machine whose ticks come late.
    pub const LATE_NS: i64 = 100_000_000;

    /// Nanoseconds since 1970.
    #[inline]
    pub fn wall(&self) -> i64 {
        if self.is_manual { self.wall_ns.load(Ordering::Relaxed) } else { clock::wall_ns() }
    }

    /// Nanoseconds since the machine was started.
    #[inline]
    pub fn boot(&self) -> i64 {
        if self.is_manual { self.boot_ns.load(Ordering::Relaxed) } else { clock::boot_ns() }
    }

    /// The boot clock as it was at some time in the last `LATE_NS`, for those who can do with that:
    /// the clock itself is read once per tick of the kernel. A machine that slept has ticked.
    #[inline(always)]
    pub fn boot_lately(&self) -> i64 {
        if self.is_manual {
            return self.boot();
        }
        let tick = clock::tick();
        if self.tick.load(Ordering::Acquire) == tick {
            return self.boot_at_tick.load(Ordering::Relaxed);
        }
        let now = clock::boot_ns();
        self.boot_at_tick.store(now, Ordering::Relaxed);
        self.tick.store(tick, Ordering::Release); // After its time: one who sees it sees that too.
        now
    }

    /// Which run of the machine this is.
    pub fn boot_id_now(&self) -> u64 {
        self.boot_id.load(Ordering::Relaxed)
    }

    /// Whether only a test moves it: then nobody may sleep until a deadline.
    #[inline(always)]
    pub fn is_manual(&self) -> bool {
        self.is_manual
    }
}

/// The kernel's own id; where a container hides it, when the machine was started; where that is
/// hidden too, a number that no other process has: then nothing is known to be of this run of the
/// machine but what this process has written.
fn machine_boot_id() -> u64 {
    static OWN: LazyLock<u64> = LazyLock::new(|| RandomState::new().hash_one(std::process::id()));
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
    let stat = || std::fs::read_to_string("/proc/stat");
    let found = id.ok().and_then(|text| parse_id(&text));
    let found = found.or_else(|| stat().ok().and_then(|text| parse_start(&text)));
    found.unwrap_or_else(|| *OWN).max(1)
}

fn parse_id(text: &str) -> Option<u64> {
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).take(16).collect();
    u64::from_str_radix(&digits, 16).ok().filter(|_| digits.len() == 16)
}

fn parse_start(text: &str) -> Option<u64> {
    let seconds = text.lines().find_map(|line| line.strip_prefix("btime "))?;
    seconds.trim().parse().ok()
}

#[pymethods]
impl Clock {
    /// The machine's clock, or, with `manual`, one that stands still at `wall_ns`.
    #[new]
    #[pyo3(signature = (manual = false, wall_ns = 1_700_000_000_000_000_000))]
    fn new(manual: bool, wall_ns: i64) -> Self {
        Self {
            is_manual: manual,
            wall_ns: wall_ns.into(),
            boot_ns: 1_000_000_000.into(),
            boot_id: if manual { 1 } else { machine_boot_id() }.into(),
            tick: 0.into(),
            boot_at_tick: 0.into(),
        }
    }

    /// Nanoseconds since 1970.
    fn wall_now_ns(&self) -> i64 {
        self.wall()
    }

    /// Nanoseconds since the machine was started.
    fn boot_now_ns(&self) -> i64 {
        self.boot()
    }

    /// In a forked child, which may be in another time namespace.
    fn after_fork(&self) {
        clock::forget_shift();
    }

    /// Which run of the machine this is.
    fn boot_id(&self) -> u64 {
        self.boot_id_now()
    }

    /// Whether only a test moves it.
    #[getter]
    fn manual(&self) -> bool {
        self.is_manual
    }

    /// Both clocks go on (a manual clock only).
    fn advance_ns(&self, by: i64) {
        self.wall_ns.fetch_add(by, Ordering::Relaxed);
        self.boot_ns.fetch_add(by.max(0), Ordering::Relaxed);
    }

    /// The wall clock is set, as an administrator would (a manual clock only).
    fn set_wall_ns(&self, wall_ns: i64) {
        self.wall_ns.store(wall_ns, Ordering::Relaxed);
    }

    /// The machine is started anew, `off_ns` after it went down (a manual clock only).
    fn restart(&self, off_ns: i64) {
        self.wall_ns.fetch_add(off_ns, Ordering::Relaxed);
        self.boot_ns.store(1_000_000_000, Ordering::Relaxed);
        self.boot_id.fetch_add(1, Ordering::Relaxed);
    }
}

/// `seconds` as nanoseconds; an error names the argument that they were given as.
#[inline]
pub fn seconds_to_ns(name: &str, seconds: f64) -> PyResult<i64> {
    if !seconds.is_finite() || !(0.0..=4e9).contains(&seconds) {
        let wrong = (name, seconds, "a number of seconds from 0 to 4e9");
        return Err(Python::attach(|py| errors::error(py, "OptionError", wrong)));
    }
    #[allow(clippy::cast_possible_truncation, reason = "in range: checked above")]
    Ok((seconds * 1e9) as i64)
}

/// A number of seconds, or none. Of a whole number, as most are, Python would make a float first;
/// most of these are 0, of which there is one object.
#[inline]
pub fn seconds_or_none(value: &Bound<'_, PyAny>) -> PyResult<Option<f64>> {
    static ZERO: PyOnceLock<Py<PyInt>> = PyOnceLock::new();
    let py = value.py();
    if value.is(ZERO.get_or_init(py, || PyInt::new(py, 0).unbind())) {
        return Ok(Some(0.0));
    }
    let whole = value.cast_exact::<PyInt>().ok().and_then(|whole| whole.extract::<i32>().ok());
    whole.map_or_else(|| value.extract(), |whole| Ok(Some(f64::from(whole))))
}

/// Refuses a timeout that nobody can wait for, whether or not there is anything to wait for.
#[inline]
pub fn check_timeout(timeout: Option<f64>) -> PyResult<()> {
    timeout.map_or(Ok(()), |seconds| seconds_to_ns("timeout", seconds).map(drop))
}
