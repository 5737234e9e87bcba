//! A log's folder: the names of its files, and the id and lanes that all of them share.

use std::collections::BTreeMap;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hasher as _};
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::disk::{Disk, File};
use crate::format::bytes::{Take, VERSION, put_magic, put_u32, put_u64};
use crate::format::checksum::{self, Key};
use crate::format::segment::{self, Header};
use crate::{LANES_MAX, OpenError, ReadError};

/// A log's folder on its disk.
pub(crate) struct Folder {
    pub(crate) path: PathBuf,
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) lanes: u32,
    pub(crate) key: Key,
    /// The segments that are open for reading: a file must not become another segment's under its readers.
    opened: Mutex<BTreeMap<u64, Weak<dyn File>>>,
}

// === impl Folder ===

impl Folder {
    /// Reads `LOG`, or creates it in a folder that has none.
    pub(crate) fn open(path: &Path, lanes: u32, disk: Arc<dyn Disk>) -> Result<Self, OpenError> {
        if let Some(folder) = Self::existing(path, Arc::clone(&disk))? {
            return Ok(folder);
        }
        let names = disk
            .list(path)
            .map_err(|source| open_error("cannot list", path, source))?;
        if let Some(segment) = names.iter().find(|file| segment::first_of(&file.name).is_some()) {
            return Err(OpenError::Format {
                file: path.join(LOG),
                why: format!("it is missing, but there is {}", segment.name),
            });
        }
        let id = RandomState::new().build_hasher().finish() ^ disk.now_ms().rotate_left(32);
        let folder = Self::new(path, disk, lanes, id);
        let mut bytes = Vec::new();
        put_magic(&mut bytes, b"TGLOG");
        put_u64(&mut bytes, id);
        put_u32(&mut bytes, lanes);
        let crc = checksum::of(&bytes);
        put_u32(&mut bytes, crc);
        let written = folder.replace(LOG, |file| file.write_at(&mut [IoSlice::new(&bytes)], 0));
        written.map_err(|source| open_error("cannot write", &path.join(LOG), source))?;
        Ok(folder)
    }

    /// Reads `LOG`; returns none if there is no such file.
    pub(crate) fn existing(path: &Path, disk: Arc<dyn Disk>) -> Result<Option<Self>, OpenError> {
        let file = path.join(LOG);
        let mut bytes = vec![0; LOG_BYTES + 1];
        let read = match disk.open(&file).and_then(|open| open.read_at(&mut bytes, 0)) {
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(open_error("cannot read", &file, source)),
        };
        let refuse = |why: &str| OpenError::Format {
            file: file.clone(),
            why: why.to_owned(),
        };
        let bytes = &bytes[..read];
        if !bytes.starts_with(b"TGLOG") {
            return Err(refuse("this is no log"));
        }
        let mut take = Take(bytes);
        let parsed = take
            .magic(b"TGLOG")
            .and_then(|()| Some((take.u64()?, take.u32()?, take.u32()?)));
        match parsed {
            None => Err(refuse(&match bytes.get(5) {
                Some(format) if *format > VERSION => format!(
                    "it was made by a newer version of Tidegate: its format is {format}, this one reads {VERSION}. Nothing was \
                     changed: start that version again, to go on with it or to have it deliver what is in there"
                ),
                _ => "it was made by another version".to_owned(),
            })),
            Some((id, lanes, crc)) => {
                let sound = read == LOG_BYTES
                    && crc == checksum::of(&bytes[..LOG_BYTES - 4])
                    && (1..=LANES_MAX).contains(&lanes);
                if sound {
                    Ok(Some(Self::new(path, disk, lanes, id)))
                } else {
                    Err(refuse("it is damaged"))
                }
            }
        }
    }

    fn new(path: &Path, disk: Arc<dyn Disk>, lanes: u32, id: u64) -> Self {
        Self {
            path: path.to_owned(),
            disk,
            lanes,
            key: Key::new(id),
            opened: Mutex::default(),
        }
    }

    /// Puts a whole file in place, or leaves the old one there; the change is durable when this returns.
    pub(crate) fn replace(
        &self,
        name: &str,
        fill: impl FnOnce(&dyn File) -> io::Result<()>,
    ) -> io::Result<Arc<dyn File>> {
        let new = self.path.join(format!("{name}{NEW}"));
        let file = self.disk.create(&new)?;
        fill(&*file)?;
        file.sync()?;
        self.disk.rename(&new, &self.path.join(name))?;
        self.disk.sync_folder(&self.path)?;
        Ok(Arc::from(file))
    }

    pub(crate) fn segment(&self, first: u64) -> PathBuf {
        self.path.join(segment::name(first))
    }

    /// Opens a segment's file for reading; all its readers share one.
    pub(crate) fn open_segment(&self, first: u64) -> Result<Arc<dyn File>, ReadError> {
        let mut opened = self.opened.lock();
        if let Some(file) = opened.get(&first).and_then(Weak::upgrade) {
            return Ok(file);
        }
        let path = self.segment(first);
        let file = self.disk.open(&path);
        let file: Arc<dyn File> = Arc::from(file.map_err(|source| read_error("cannot open", &path, source))?);
        opened.retain(|_, file| file.strong_count() > 0);
        opened.insert(first, Arc::downgrade(&file));
        Ok(file)
    }

    /// Renames a segment's file, unless somebody reads it, and returns whether it did. Not yet durable.
    pub(crate) fn set_aside(&self, first: u64, to: &Path) -> io::Result<bool> {
        let opened = self.opened.lock();
        if opened.get(&first).is_some_and(|file| file.strong_count() > 0) {
            return Ok(false);
        }
        self.disk.rename(&self.segment(first), to).map(|()| true)
    }

    /// Reads a segment's header; none if it does not check.
    pub(crate) fn header(&self, file: &dyn File, first: u64) -> Result<Option<Header>, ReadError> {
        let header = Header::read(file, first, self.lanes, self.key);
        header.map_err(|source| read_error("cannot read", &self.segment(first), source))
    }
}

pub(crate) fn open_error(doing: &'static str, path: &Path, source: io::Error) -> OpenError {
    OpenError::Io {
        doing,
        path: path.to_owned(),
        source,
    }
}

pub(crate) fn read_error(doing: &'static str, path: &Path, source: io::Error) -> ReadError {
    ReadError::Io {
        doing,
        path: path.to_owned(),
        source,
    }
}

/// The file that says what the log is.
pub(crate) const LOG: &str = "LOG";
/// The file that the writing process locks.
pub(crate) const LOCK: &str = "LOCK";
/// The file that says how far the log is known to be durable.
pub(crate) const MARK: &str = "MARK";
/// The file that says how far the log is known to be written.
pub(crate) const WRITTEN: &str = "WRITTEN";
/// The suffix of a cursor file's name.
pub(crate) const CURSOR: &str = ".cursor";
/// The suffix of a file that is about to be renamed.
pub(crate) const NEW: &str = ".new";
/// The folder for copies of damaged bytes.
pub(crate) const QUARANTINE: &str = "quarantine";
const LOG_BYTES: usize = 24;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RealDisk;

    #[test]
    fn a_log_keeps_its_lanes_and_id_and_refuses_what_is_none() {
        let temporary = tempfile::tempdir().unwrap();
        let open = |lanes| Folder::open(temporary.path(), lanes, Arc::new(RealDisk::default()));
        let key = open(7).unwrap().key;
        let again = open(9).unwrap();
        assert_eq!((again.lanes, again.key), (7, key));

        let log = temporary.path().join(LOG);
        let bytes = std::fs::read(&log).unwrap();
        for (at, why) in [
            (0, "no log"),
            (6, "another version"),
            (8, "damaged"),
            (23, "damaged"),
        ] {
            let mut other = bytes.clone();
            other[at] ^= 1;
            std::fs::write(&log, other).unwrap();
            let refusal = open(7).err().unwrap().to_string();
            assert!(refusal.contains(why), "{refusal}");
        }
        let mut next = bytes.clone();
        next[5] = VERSION + 1;
        std::fs::write(&log, &next).unwrap();
        let refusal = open(7).err().unwrap().to_string();
        assert!(
            refusal.contains("newer version") && refusal.contains("format is 2"),
            "{refusal}"
        );
        assert_eq!(std::fs::read(&log).unwrap(), next, "it is left as it was");
        std::fs::remove_file(&log).unwrap();
        std::fs::write(temporary.path().join(segment::name(0)), b"").unwrap();
        assert!(open(7).err().unwrap().to_string().contains("missing"));
    }
}
