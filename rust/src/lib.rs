//! `penstock._core`: finds and moves bytes and keeps shared state; holds no policy.

mod append;
mod bytes;
mod clock;
mod errors;
mod files;
mod formats;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod group;
mod message;
#[cfg(test)]
mod properties;
mod python;
mod read;
mod segment;
mod shared;
mod sys;

use pyo3::prelude::*;

// What `sys::guarded` and `sys::reuse` do is right under the interpreter lock alone.
#[pymodule(gil_used = true)]
mod _core {
    #[pymodule_export]
    use super::append::Writer;
    #[pymodule_export]
    use super::append::arrow_in::crc32c_array;
    #[pymodule_export]
    use super::append::atomic::check_range;
    #[pymodule_export]
    use super::bytes::cipher::{decrypt_bytes, encrypt_bytes};
    #[pymodule_export]
    use super::clock::Clock;
    #[pymodule_export]
    use super::files::effects::{
        create_file, file_system, make_folder, open_or_create, rename_file, replace_file,
        resize_file, sync_file, sync_folder, unlink_file, write_file,
    };
    #[cfg(feature = "recorder")]
    #[pymodule_export]
    use super::files::recording::{
        fail_syncs, mark_effect, record_effects, refuse_memory, take_effects,
    };
    #[pymodule_export]
    use super::formats::beats::python::{
        beats_check_macs, beats_close_macs, beats_crypt, beats_frames, beats_is_stream,
        beats_open_end, beats_pack_stream, beats_plain_frame, beats_publish, beats_state,
        beats_stream, beats_stream_end, beats_stream_rest, beats_whole_frames,
    };
    #[pymodule_export]
    use super::formats::mfq::{consumer_offset, mfq_frames, producer_offset};
    #[pymodule_export]
    use super::formats::mirror::PyMirror;
    #[pymodule_export]
    use super::formats::python::{
        crc32, crc32c, penstock_frames, penstock_key_check, publish_size_word, tag_matches,
    };
    #[pymodule_export]
    use super::formats::vqs::header::PyRingHeader;
    #[pymodule_export]
    use super::formats::vqs::vqs_frames;
    #[pymodule_export]
    use super::formats::zbus::files::ZbusIndex;
    #[pymodule_export]
    use super::formats::zbus::zbus_frames;
    #[pymodule_export]
    use super::group::PyGroup;
    #[pymodule_export]
    use super::group::journal::replay_journal;
    #[pymodule_export]
    use super::message::Message;
    #[pymodule_export]
    use super::python::aio::Watch;
    #[pymodule_export]
    use super::python::mfq_consumer::MfqConsumer;
    #[pymodule_export]
    use super::python::mfq_producer::MfqProducer;
    #[pymodule_export]
    use super::python::upkeep::Upkeep;
    #[pymodule_export]
    use super::python::word_offsets::all_word_offsets;
    #[pymodule_export]
    use super::read::arrow_out::arrow_stream;
    #[pymodule_export]
    use super::read::scan::{Recent, Scan};
    #[pymodule_export]
    use super::read::walk::{
        Walked, find_frame, frame_cuts, frame_start, is_boundary, opens_frames, skip_frames, walk,
    };
    #[pymodule_export]
    use super::segment::publish::PyPublish;
    #[pymodule_export]
    use super::segment::{PyFrames, PySegment};
    #[pymodule_export]
    use super::shared::control::Shared;
    #[pymodule_export]
    use super::shared::folder_lock::FolderLock;
    #[pymodule_export]
    use super::sys::view::View;
}
