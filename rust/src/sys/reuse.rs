//! Objects of Python's that become others: to make an object and to free it takes longer than to
//! find the message that it stands for.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};

use pyo3::prelude::*;
use pyo3::pyclass::boolean_struct::True;
use pyo3::{PyClass, ffi};

/// What is inside an object that may become another one. Every holder of the object reads it; it
/// changes only while the object has a single holder.
pub struct Changing<T>(UnsafeCell<T>);

// SAFETY: behind a shared reference it is only read; `Alone` alone changes it, and then nobody else
// has a way to it.
unsafe impl<T: Sync> Sync for Changing<T> {}

impl<T> Changing<T> {
    /// Holds `value`.
    pub const fn new(value: T) -> Self {
        Self(UnsafeCell::new(value))
    }
}

impl<T> Deref for Changing<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: with `self` one has the object, and while others may too nobody changes what is
        // inside.
        unsafe { &*self.0.get() }
    }
}

impl<T> DerefMut for Changing<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        self.0.get_mut()
    }
}

/// A class whose objects may become others.
pub trait Reusable: PyClass<Frozen = True> + Sync {
    /// What changes.
    type Value;

    /// Where it is.
    fn inside(&self) -> &Changing<Self::Value>;
}

/// An object that nobody but the holder of this has.
pub struct Alone<C>(Py<C>);

impl<C: Reusable> Alone<C> {
    /// Takes the object out of `kept`, if nobody has another reference to it. The collector must
    /// not know the object, for it hands out what it knows (`memory::untrack`).
    #[inline(always)]
    pub fn take(kept: &mut Option<Py<C>>, _py: Python<'_>) -> Option<Self> {
        // SAFETY: `object` holds a reference, so the object is there.
        let is_alone = |object: &mut Py<C>| unsafe { ffi::Py_REFCNT(object.as_ptr()) == 1 };
        kept.take_if(is_alone).map(Self)
    }

    /// What is inside, to be changed.
    #[inline(always)]
    pub fn value(&mut self, _py: Python<'_>) -> &mut C::Value {
        // SAFETY: the one reference there is belongs to `self`, which lends it to nobody and is
        // borrowed exclusively, so nothing else points inside.
        unsafe { &mut *self.0.get().inside().0.get() }
    }

    /// The object, for others to have.
    #[inline(always)]
    pub fn into_object(self) -> Py<C> {
        self.0
    }
}
