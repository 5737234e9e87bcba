//! The file of a running gateway, replaced as a whole, with the former one kept beside it. A new file counts
//! only once it is confirmed: if the gateway ends before that, even by kill -9 or a power failure, the next
//! start finds the former file in its place again.
//!
//! Beside `tidegate.yml` are `tidegate.yml.former`, the file before the last replacement, and, until a
//! replacement is confirmed, `tidegate.yml.unconfirmed`, a copy of the new file. The copy is written before
//! the file is replaced. If the file is the same as the copy, it was never confirmed; if it is another one,
//! the replacement did not take place, or somebody has written the file since, and the copy means nothing.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown};
use std::path::{Path, PathBuf};

/// A configuration file and its companions.
#[derive(Clone, Debug)]
pub struct KeptFile {
    file: PathBuf,
}

impl KeptFile {
    /// Finds the file itself, behind symbolic links.
    ///
    /// # Errors
    /// Fails if the file is not there.
    pub fn find(file: &Path) -> io::Result<Self> {
        let file = fs::canonicalize(file)?;
        Ok(Self { file })
    }

    /// Returns the file's text.
    ///
    /// # Errors
    /// Fails if the file cannot be read.
    pub fn text(&self) -> io::Result<String> {
        fs::read_to_string(&self.file)
    }

    /// Returns the text before the last replacement, if there was one.
    pub fn former_text(&self) -> Option<String> {
        fs::read_to_string(self.beside(FORMER)).ok()
    }

    /// Checks whether the file can be replaced.
    ///
    /// # Errors
    /// Returns why it cannot be replaced.
    pub fn may_be_replaced(&self) -> io::Result<()> {
        let writable = |path: &Path| rustix::fs::access(path, rustix::fs::Access::WRITE_OK);
        writable(&self.file)?;
        writable(self.folder())?;
        Ok(())
    }

    /// Replaces the text, and keeps the former one. At any moment, either the old or the new file is there.
    /// Permissions stay.
    ///
    /// # Errors
    /// Fails if a file cannot be written. The old file is then there, and no copy of the new one: it would
    /// take back the same text, once somebody has written it by hand.
    pub fn replace(&self, text: &str) -> io::Result<()> {
        self.may_be_replaced()?;
        let former = fs::read(&self.file)?;
        self.write(FORMER, &former)?;
        let replaced = self.put_in_place(text);
        if replaced.is_err() {
            if fs::read(&self.file).is_ok_and(|now| now != former) {
                self.go_back()?;
            }
            let _ = fs::remove_file(self.beside(NEW)); // it may not be there
            self.confirm()?;
        }
        replaced
    }

    fn put_in_place(&self, text: &str) -> io::Result<()> {
        self.write(UNCONFIRMED, text.as_bytes())?;
        self.sync()?;
        self.write(NEW, text.as_bytes())?;
        fs::rename(self.beside(NEW), &self.file)?;
        self.sync()
    }

    /// Makes the last replacement final.
    ///
    /// # Errors
    /// Fails if the copy cannot be removed; the replacement is then unconfirmed.
    pub fn confirm(&self) -> io::Result<()> {
        match fs::remove_file(self.beside(UNCONFIRMED)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => self.sync(),
        }
    }

    /// Writes the former text beside the file again, if somebody has removed it.
    ///
    /// # Errors
    /// Fails if it cannot be written.
    pub fn keep_former(&self, text: &str) -> io::Result<()> {
        if !self.beside(FORMER).try_exists()? {
            // A kill must not leave a part of it, which the next start would put back.
            self.write(NEW, text.as_bytes())?;
            fs::rename(self.beside(NEW), self.beside(FORMER))?;
        }
        Ok(())
    }

    /// Puts the former file back in its place.
    ///
    /// # Errors
    /// Fails if it cannot be put there; the new file is then still there, unconfirmed.
    pub fn go_back(&self) -> io::Result<()> {
        fs::rename(self.beside(FORMER), &self.file)?;
        self.sync()?;
        self.confirm()
    }

    /// Puts the former file back if the present one was never confirmed. To be called before the file is
    /// read at a start. Returns whether it was put back.
    ///
    /// # Errors
    /// Fails if the former file cannot be put back.
    pub fn go_back_if_unconfirmed(&self) -> io::Result<bool> {
        // What a kill left may have secrets that the file has no more. It is not worth a failed start.
        let _ = fs::remove_file(self.beside(NEW));
        let unconfirmed = match fs::read(self.beside(UNCONFIRMED)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            read => read?,
        };
        // Somebody wrote another file, or removed the former one, by hand: the present one is all there is.
        if fs::read(&self.file)? != unconfirmed || !self.beside(FORMER).try_exists()? {
            self.confirm()?;
            return Ok(false);
        }
        self.go_back()?;
        Ok(true)
    }

    /// Writes a companion of the file, with the file's owner and permissions.
    fn write(&self, suffix: &str, bytes: &[u8]) -> io::Result<()> {
        let path = self.beside(suffix);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let like = fs::metadata(&self.file)?;
        let mut out = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)?;
        // Only root may give a file away. Whoever else runs the gateway owns what it writes.
        let _ = fchown(&out, Some(like.uid()), Some(like.gid()));
        out.set_permissions(Permissions::from_mode(like.mode() & 0o777))?;
        out.write_all(bytes)?;
        out.sync_all()
    }

    fn sync(&self) -> io::Result<()> {
        File::open(self.folder())?.sync_all()
    }

    fn folder(&self) -> &Path {
        self.file.parent().unwrap_or(Path::new("/"))
    }

    fn beside(&self, suffix: &str) -> PathBuf {
        let mut name = self.file.file_name().map(OsStr::to_owned).unwrap_or_default();
        name.push(suffix);
        self.file.with_file_name(name)
    }
}

const FORMER: &str = ".former";
const UNCONFIRMED: &str = ".unconfirmed";
/// Not `.new`, which people and package managers use for files of their own.
const NEW: &str = ".replacing";

#[cfg(test)]
mod tests {
    use super::*;

    fn kept() -> (tempfile::TempDir, KeptFile, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("tidegate.yml");
        fs::write(&file, "old").unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o640)).unwrap();
        let link = folder.path().join("link.yml");
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let kept = KeptFile::find(&link).unwrap();
        (folder, kept, file)
    }

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(folder)
            .unwrap()
            .map(|one| one.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_confirmed_file_stays_and_the_former_one_is_kept() {
        let (folder, kept, file) = kept();
        kept.replace("new").unwrap();
        kept.confirm().unwrap();
        assert!(!kept.go_back_if_unconfirmed().unwrap());
        assert_eq!(fs::read_to_string(&file).unwrap(), "new");
        assert_eq!(kept.former_text().as_deref(), Some("old"));
        assert_eq!(
            names(folder.path()),
            ["link.yml", "tidegate.yml", "tidegate.yml.former"]
        );
        assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o640);
    }

    #[test]
    fn an_unconfirmed_file_goes_back_at_the_next_start() {
        let (folder, kept, file) = kept();
        kept.replace("new").unwrap();
        assert_eq!(kept.text().unwrap(), "new");
        assert!(kept.go_back_if_unconfirmed().unwrap());
        assert_eq!(fs::read_to_string(&file).unwrap(), "old");
        assert!(!kept.go_back_if_unconfirmed().unwrap());
        assert_eq!(names(folder.path()), ["link.yml", "tidegate.yml"]);
    }

    #[test]
    fn a_replacement_that_fails_takes_nothing_back_at_the_next_start() {
        let (folder, kept, file) = kept();
        // As a full disk, or a file that is a mount of its own, fails it: after the copy is written.
        let obstacle = folder.path().join("tidegate.yml.replacing");
        fs::create_dir(&obstacle).unwrap();
        kept.replace("new").unwrap_err();
        assert_eq!(fs::read_to_string(&file).unwrap(), "old");
        // Somebody writes the text by hand instead.
        fs::write(&file, "new").unwrap();
        assert!(!kept.go_back_if_unconfirmed().unwrap());
        assert_eq!(fs::read_to_string(&file).unwrap(), "new");
    }

    #[test]
    fn a_former_file_that_was_removed_is_written_again_and_one_that_is_there_stays() {
        let (folder, kept, file) = kept();
        kept.replace("new").unwrap();
        kept.keep_former("other").unwrap();
        assert_eq!(kept.former_text().as_deref(), Some("old"));
        fs::remove_file(folder.path().join("tidegate.yml.former")).unwrap();
        kept.keep_former("old").unwrap();
        kept.go_back().unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "old");
        assert_eq!(names(folder.path()), ["link.yml", "tidegate.yml"]);
    }

    #[test]
    fn what_somebody_wrote_since_is_not_taken_back() {
        let (_folder, kept, file) = kept();
        kept.replace("new").unwrap();
        fs::write(&file, "by hand").unwrap();
        assert!(!kept.go_back_if_unconfirmed().unwrap());
        assert_eq!(fs::read_to_string(&file).unwrap(), "by hand");
    }

    #[test]
    fn without_a_former_file_the_present_one_is_kept_and_the_gateway_starts() {
        let (folder, kept, file) = kept();
        kept.replace("new").unwrap();
        fs::remove_file(folder.path().join("tidegate.yml.former")).unwrap();
        assert!(!kept.go_back_if_unconfirmed().unwrap());
        assert_eq!(fs::read_to_string(&file).unwrap(), "new");
        assert_eq!(names(folder.path()), ["link.yml", "tidegate.yml"]);
    }

    #[test]
    fn a_gateway_that_is_killed_at_any_step_starts_with_the_former_file() {
        // The states that the steps of `replace` leave behind.
        for (unconfirmed, now) in [(false, "old"), (true, "old"), (true, "new")] {
            let (_folder, kept, file) = kept();
            kept.write(FORMER, b"old").unwrap();
            kept.write(NEW, b"ne").unwrap();
            if unconfirmed {
                kept.write(UNCONFIRMED, b"new").unwrap();
            }
            fs::write(&file, now).unwrap();
            kept.go_back_if_unconfirmed().unwrap();
            assert_eq!(fs::read_to_string(&file).unwrap(), "old", "{unconfirmed} {now}");
            assert!(!kept.beside(NEW).exists());
        }
    }
}
