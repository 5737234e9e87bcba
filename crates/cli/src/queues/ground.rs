//! Folders that may be another user's. Root works in them with the rights of their owner, in most cases the
//! gateway's user: what it makes there is the owner's, and links of the owner lead it nowhere where the owner
//! could not go by itself.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, anyhow, ensure};
use rustix::thread::{Gid, set_thread_groups};

use super::carry::make_folder;
use crate::output::why;

/// A folder in which a command works.
pub(crate) struct Ground {
    /// The folder's path as the user knows it.
    named: PathBuf,
    /// The path to work with: root's leads through the open folder, since the owner may not be able to pass
    /// the folders around it (`/var/lib/private`), and whoever owns those could put another in its place.
    path: PathBuf,
    open: Option<File>,
    owner: Option<Owner>,
}

#[derive(Clone, Copy)]
struct Owner {
    uid: u32,
    gid: u32,
}

/// As long as it exists, this thread reaches files with the rights of another user.
struct Acting {
    uid: u32,
    gid: u32,
    groups: Vec<Gid>,
}

// === impl Ground ===

impl Ground {
    /// Opens a folder that is there.
    pub(crate) fn of(folder: &Path) -> Result<Self> {
        let of = || folder.display().to_string();
        if !rustix::process::geteuid().is_root() {
            return Ok(Self {
                named: folder.to_owned(),
                path: folder.to_owned(),
                open: None,
                owner: None,
            });
        }
        let open = open_folder(folder).with_context(of)?;
        let ground = Self::on(open, folder).with_context(of)?;
        // Whoever lays a link to one of root's folders could have root write there.
        let laid = ground.owner.is_none().then(|| foreign_link(folder)).flatten();
        if let Some(link) = laid {
            let link = link.display();
            anyhow::bail!("{link} is another user's link to a folder of root: name the folder itself");
        }
        Ok(ground)
    }

    /// Opens a folder, and makes it if it is missing: for the owner of the nearest folder around it.
    pub(crate) fn made(folder: &Path) -> Result<Self> {
        let absolute = std::path::absolute(folder)?;
        let there = absolute.ancestors().find(|around| around.is_dir());
        let there = there.with_context(|| folder.display().to_string())?;
        if there == absolute {
            return Self::of(folder);
        }
        let around = Self::of(there)?;
        let path = around.path.join(absolute.strip_prefix(there)?);
        let made = around.act(|| {
            make_folder(&path)?;
            open_folder(&path).with_context(|| path.display().to_string())
        });
        let open = made.map_err(|error| around.name(error))?;
        if around.open.is_none() {
            return Self::of(folder);
        }
        let ground = Self::on(open, folder)?;
        ensure!(
            around.owner.is_none() || ground.owner.is_some(),
            "{} is root's, and was not a moment ago",
            folder.display()
        );
        Ok(ground)
    }

    /// Opens the folder of `path.data`, and makes it if it is missing. Where root owns it, so that the
    /// gateway's user can write there only by its group, that user is the owner of the queues.
    pub(crate) fn data(folder: &Path) -> Result<Self> {
        let mut ground = Self::made(folder)?;
        let (Some(open), None) = (&ground.open, &ground.owner) else {
            return Ok(ground);
        };
        let queues = fs::symlink_metadata(ground.path.join("queue"));
        ground.owner = queues.ok().and_then(|queues| Owner::of(&queues));
        ensure!(
            ground.owner.is_some() || open.metadata()?.mode() & OTHERS_WRITE == 0,
            "{} is root's, but others may write there, and could lead root elsewhere: give it to the gateway's user",
            folder.display()
        );
        Ok(ground)
    }

    fn on(open: File, named: &Path) -> io::Result<Self> {
        let owner = Owner::of(&open.metadata()?);
        Ok(Self {
            named: named.to_owned(),
            path: PathBuf::from(format!("/proc/self/fd/{}", open.as_raw_fd())),
            open: Some(open),
            owner,
        })
    }

    /// The path by which this process reaches the folder; [`Ground::name`] puts its name into errors.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The path of something in the folder, as the user knows it.
    pub(crate) fn named(&self, path: &Path) -> PathBuf {
        match path.strip_prefix(&self.path) {
            Ok(below) if below.as_os_str().is_empty() => self.named.clone(),
            Ok(below) => self.named.join(below),
            Err(_) => path.to_owned(),
        }
    }

    /// Makes the folder the working directory, and returns a path to it whose parent can be opened.
    pub(crate) fn enter(&self) -> io::Result<PathBuf> {
        match &self.open {
            None => Ok(self.path.clone()),
            Some(open) => {
                rustix::process::fchdir(open)?;
                Ok(PathBuf::from("."))
            }
        }
    }

    /// Does something in the folder, with the rights of its owner if this is root.
    pub(crate) fn act<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let Some(owner) = self.owner else {
            return work();
        };
        let acting = Acting::begin(owner);
        let _acting = acting.with_context(|| {
            let folder = self.named.display();
            format!(
                "root cannot act as user {}, who owns {folder}: run this as that user",
                owner.uid
            )
        })?;
        work()
    }

    /// Calls the folder in an error by its name.
    pub(crate) fn name(&self, error: anyhow::Error) -> anyhow::Error {
        let (text, path) = (why(&error), self.path.display().to_string());
        if self.open.is_none() || !text.contains(&path) {
            return error;
        }
        let (mut named, mut rest) = (String::new(), &*text);
        while let Some((before, after)) = rest.split_once(&path) {
            named.push_str(before);
            // `/proc/self/fd/12` begins like `/proc/self/fd/1`.
            match after.starts_with(|letter: char| letter.is_ascii_digit()) {
                true => named.push_str(&path),
                false => named.push_str(&self.named.display().to_string()),
            }
            rest = after;
        }
        anyhow!("{named}{rest}")
    }
}

/// Opens a folder to reach what is in it.
fn open_folder(folder: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(libc::O_DIRECTORY).open(folder)
}

/// Opens a file to read it, but neither a link nor a pipe, on which this process would wait for ever.
pub(crate) fn open_file(file: &Path) -> Result<File> {
    let mut options = OpenOptions::new();
    options
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    let open = options.open(file).with_context(|| file.display().to_string())?;
    ensure!(open.metadata()?.is_file(), "{} is not a file", file.display());
    Ok(open)
}

/// Returns a link on the way to a folder that is not root's.
fn foreign_link(folder: &Path) -> Option<PathBuf> {
    let absolute = std::path::absolute(folder).ok()?;
    let foreign =
        |path: &&Path| fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink() && found.uid() != 0);
    absolute.ancestors().find(foreign).map(Path::to_owned)
}

// === impl Owner ===

impl Owner {
    /// Returns none if it is root's.
    fn of(found: &fs::Metadata) -> Option<Self> {
        // Root's group may read what nobody else may.
        let gid = Some(found.gid()).filter(|gid| *gid != 0).unwrap_or(NO_GROUP);
        let uid = Some(found.uid()).filter(|uid| *uid != 0)?;
        Some(Self { uid, gid })
    }
}

// === impl Acting ===

impl Acting {
    fn begin(owner: Owner) -> io::Result<Self> {
        let groups = rustix::process::getgroups()?;
        set_thread_groups(&[Gid::from_raw(owner.gid)])?;
        let before = Self {
            gid: set_fs_gid(owner.gid),
            uid: set_fs_uid(owner.uid),
            groups,
        };
        // The calls return no errors; an id that does not exist changes nothing, and returns the present one.
        if (set_fs_uid(u32::MAX), set_fs_gid(u32::MAX)) != (owner.uid, owner.gid) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        Ok(before)
    }
}

impl Drop for Acting {
    fn drop(&mut self) {
        set_fs_uid(self.uid);
        set_fs_gid(self.gid);
        let _ = set_thread_groups(&self.groups); // it was allowed a moment ago
    }
}

/// Sets the user with whose rights this thread reaches files. Unlike the effective user, it gives the other
/// user no right to signal this process, and it holds for one thread.
fn set_fs_uid(uid: u32) -> u32 {
    // SAFETY: the call has no memory of ours in its hands.
    (unsafe { libc::setfsuid(uid) }).cast_unsigned()
}

fn set_fs_gid(gid: u32) -> u32 {
    // SAFETY: the call has no memory of ours in its hands.
    (unsafe { libc::setfsgid(gid) }).cast_unsigned()
}

/// The bits of a mode by which others than the owner may write.
const OTHERS_WRITE: u32 = 0o022;
/// The group that no file should have.
const NO_GROUP: u32 = 65_534;
