//! The one producer of an mfq queue: a put with nothing beside the body.

use std::sync::Mutex;

use pyo3::intern;
use pyo3::prelude::*;

use crate::append::Writer;
use crate::message::Body;
use crate::shared::mutex;

/// The producer.
#[pyclass(frozen, module = "penstock._core")]
pub struct MfqProducer {
    host: Py<PyAny>,
    writer: Mutex<Py<Writer>>,
}

impl MfqProducer {
    fn writer(&self, py: Python<'_>) -> PyResult<Py<Writer>> {
        let mut writer = mutex::lock(py, &self.writer);
        if writer.get().is_over() {
            drop(writer);
            let anew = ask(self.host.bind(py))?;
            writer = mutex::lock(py, &self.writer);
            *writer = anew;
        }
        Ok(writer.clone_ref(py))
    }
}

fn ask(host: &Bound<'_, PyAny>) -> PyResult<Py<Writer>> {
    Ok(host.call_method0("writer")?.cast_into::<Writer>()?.unbind())
}

#[pymethods]
impl MfqProducer {
    /// `host` has `writer()`: the queue's writer as it is open now, another one in a forked child.
    #[new]
    fn new(host: &Bound<'_, PyAny>) -> PyResult<Self> {
        let writer = Mutex::new(ask(host)?);
        Ok(Self { host: host.clone().unbind(), writer })
    }

    /// Writes bytes, or an object through its serializer; returns the message's offset.
    #[pyo3(signature = (message, serializer=None))]
    fn produce<'py>(
        &self,
        py: Python<'py>,
        message: &Bound<'py, PyAny>,
        serializer: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<u64> {
        let body = match serializer {
            None => Body::of(message)?,
            Some(serializer) => {
                Body::of(&serializer.call_method1(intern!(py, "serialize"), (message,))?)?
            }
        };
        self.writer(py)?.get().append_body(py, body.bytes())
    }
}
