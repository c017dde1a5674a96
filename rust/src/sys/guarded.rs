//! A lock for what threads use only while they have the interpreter lock. That keeps all others
//! from looking in between, so a load and a store take it; the two exchanges of a mutex cost a
//! tenth of a get.

use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU32, Ordering};

use pyo3::Python;

use crate::sys::futex;

const FREE: u32 = 0;
const TAKEN: u32 = 1;
/// Taken, and someone sleeps until it is given back.
const WANTED: u32 = 2;

/// A value that one thread at a time has. It may let go of the interpreter lock meanwhile, and has
/// it again when it gives the value back.
pub struct Guarded<T> {
    state: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: `state` is looked at and changed under the interpreter lock alone (the module asks for
// one, also of a Python that can do without), so one thread at a time has the value.
unsafe impl<T: Send> Sync for Guarded<T> {}

impl<T> Guarded<T> {
    /// This value, free.
    pub const fn new(value: T) -> Self {
        Self { state: AtomicU32::new(FREE), value: UnsafeCell::new(value) }
    }

    /// Takes the value; while another thread has it, the interpreter lock is let go. Not by a
    /// thread that has it.
    #[inline(always)]
    pub fn lock<'a>(&'a self, py: Python<'a>) -> Guard<'a, T>
    where
        T: Send,
    {
        while self.state.load(Ordering::Relaxed) != FREE {
            self.wait(py);
        }
        self.state.store(TAKEN, Ordering::Relaxed);
        Guard { guarded: self, _attached: PhantomData }
    }

    #[cold]
    fn wait(&self, py: Python<'_>)
    where
        T: Send,
    {
        let state = &self.state;
        state.store(WANTED, Ordering::Relaxed);
        py.detach(|| futex::wait(state, WANTED, None));
    }
}

/// The value, taken until this is dropped.
pub struct Guard<'a, T> {
    guarded: &'a Guarded<T>,
    /// It stays with the thread that has the interpreter lock.
    _attached: PhantomData<Python<'a>>,
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: taken by this guard alone.
        unsafe { &*self.guarded.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above, and the guard is borrowed exclusively.
        unsafe { &mut *self.guarded.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        let state = &self.guarded.state;
        let was = state.load(Ordering::Relaxed);
        state.store(FREE, Ordering::Relaxed);
        if was == WANTED {
            futex::wake(state, i32::MAX);
        }
    }
}
