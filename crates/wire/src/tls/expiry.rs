//! The fields of certificates that rustls checks and does not expose: the end of validity, and the length of
//! an RSA key.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use parking_lot::Mutex;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

/// Returns when the first of the certificates in a PEM text expires, in seconds since 1970; none if none can
/// be read.
pub fn earliest_expiry(pem: &[u8]) -> Option<i64> {
    let certificates = CertificateDer::pem_slice_iter(pem).filter_map(Result::ok);
    certificates
        .filter_map(|certificate| not_after(certificate.as_ref()))
        .min()
}

/// Like [`earliest_expiry`], for a file's text. The file is read once, and again when its length or its time
/// of modification changes.
pub fn earliest_expiry_of_file(file: &Path) -> Option<i64> {
    static KNOWN: Mutex<Option<HashMap<PathBuf, CertificateFile>>> = Mutex::new(None);
    let metadata = std::fs::metadata(file).ok()?;
    let (changed, bytes) = (metadata.modified().ok()?, metadata.len());
    let mut known = KNOWN.lock();
    let known = known.get_or_insert_default();
    if let Some(known) = known
        .get(file)
        .filter(|known| (known.changed, known.bytes) == (changed, bytes))
    {
        return known.ends;
    }
    let ends = earliest_expiry(&std::fs::read(file).ok()?);
    let now = CertificateFile { changed, bytes, ends };
    known.insert(file.to_owned(), now);
    ends
}

/// The contents of a file of certificates when it was read.
struct CertificateFile {
    changed: SystemTime,
    bytes: u64,
    ends: Option<i64>,
}

/// Returns `notAfter` of a certificate: the second time in `validity`.
fn not_after(der: &[u8]) -> Option<i64> {
    let (validity, _) = value(from_validity(der)?, SEQUENCE)?;
    let (_, after) = value(validity, *validity.first()?)?;
    let tag = *after.first()?;
    let (text, _) = value(after, tag)?;
    seconds(std::str::from_utf8(text).ok()?, tag)
}

/// Returns the length in bits of a certificate's RSA key; none if it has another key. The key is in
/// `subjectPublicKeyInfo`, which follows validity and subject: its algorithm, and the key as a text of bits,
/// which begins with the number of bits that do not count.
pub(super) fn rsa_bits(der: &[u8]) -> Option<usize> {
    let (_, rest) = value(from_validity(der)?, SEQUENCE)?;
    let (_, rest) = value(rest, SEQUENCE)?;
    let (info, _) = value(rest, SEQUENCE)?;
    let (algorithm, rest) = value(info, SEQUENCE)?;
    if !algorithm.starts_with(RSA) {
        return None;
    }
    let (_, key) = value(rest, BIT_STRING)?.0.split_first()?;
    let (modulus, _) = value(value(key, SEQUENCE)?.0, INTEGER)?;
    let zeros = modulus.iter().take_while(|byte| **byte == 0).count();
    let first = modulus.get(zeros)?;
    Some((modulus.len() - zeros) * 8 - first.leading_zeros() as usize)
}

/// Returns what a certificate has from `validity` on (RFC 5280, 4.1): it follows version, serial number,
/// signature and issuer.
fn from_validity(der: &[u8]) -> Option<&[u8]> {
    let (certificate, _) = value(der, SEQUENCE)?;
    let (mut rest, _) = value(certificate, SEQUENCE)?;
    if rest.first() == Some(&VERSION) {
        rest = value(rest, VERSION)?.1;
    }
    for tag in [INTEGER, SEQUENCE, SEQUENCE] {
        rest = value(rest, tag)?.1;
    }
    Some(rest)
}

/// Returns the content of the element with this tag at the start of `der`, and the bytes after the element.
fn value(der: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (&found, rest) = der.split_first()?;
    let (&short, rest) = rest.split_first()?;
    let (length, rest) = match short {
        0..=0x7f => (usize::from(short), rest),
        0x81..=0x84 => {
            let (bytes, rest) = rest.split_at_checked(usize::from(short - 0x80))?;
            let length = bytes.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte));
            (length, rest)
        }
        _ => return None,
    };
    (found == tag).then(|| rest.split_at_checked(length)).flatten()
}

/// Parses `YYMMDDHHMMSSZ`, or the same with a year of four digits: the two kinds of time in certificates.
fn seconds(text: &str, tag: u8) -> Option<i64> {
    let digits = text.strip_suffix('Z')?;
    let (year, rest) = digits.split_at_checked(if tag == UTC_TIME { 2 } else { 4 })?;
    let mut year: i64 = year.parse().ok()?;
    if tag == UTC_TIME {
        year += if year < 50 { 2000 } else { 1900 };
    }
    let part = |at: usize| rest.get(at..at + 2)?.parse::<i64>().ok();
    let (month, day, hour, minute, second) = (part(0)?, part(2)?, part(4)?, part(6)?, part(8)?);
    // Count years from March, so that a leap day is the last day of its year.
    let (year, month) = if month > 2 {
        (year, month - 3)
    } else {
        (year - 1, month + 9)
    };
    let days = 365 * year + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    let days = days + (153 * month + 2) / 5 + day - 1 - DAYS_TO_1970;
    Some(((days * 24 + hour) * 60 + minute) * 60 + second)
}

const SEQUENCE: u8 = 0x30;
const INTEGER: u8 = 0x02;
const BIT_STRING: u8 = 0x03;
const VERSION: u8 = 0xa0;
/// `rsaEncryption` (RFC 3279, 2.3.1), as an element.
const RSA: &[u8] = b"\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x01";
const UTC_TIME: u8 = 0x17;
/// Counted from the first of March of the year 0.
const DAYS_TO_1970: i64 = 719_468;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_certificates_write_them() {
        assert_eq!(seconds("700101000000Z", UTC_TIME), Some(0));
        assert_eq!(seconds("20000229235959Z", 0x18), Some(951_868_799));
        assert_eq!(seconds("491231235959Z", UTC_TIME), Some(2_524_607_999));
        assert_eq!(seconds("99991231235959Z", 0x18), Some(253_402_300_799));
        assert_eq!(seconds("2000", 0x18), None);
    }

    #[test]
    fn the_length_of_an_rsa_key_is_read_and_other_keys_have_none() {
        let bits = |key: rcgen::KeyPair| {
            let params = rcgen::CertificateParams::new(vec!["a".to_owned()]).unwrap();
            rsa_bits(params.self_signed(&key).unwrap().der())
        };
        let algorithm = &rcgen::PKCS_RSA_SHA256;
        let rsa = rcgen::KeyPair::generate_rsa_for(algorithm, rcgen::RsaKeySize::_2048);
        assert_eq!(bits(rsa.unwrap()), Some(2048));
        assert_eq!(bits(rcgen::KeyPair::generate().unwrap()), None);
        assert_eq!(rsa_bits(b"\x30\x03\x30\x01\xa0"), None);
    }

    #[test]
    fn the_earliest_of_several_certificates_counts_and_nonsense_is_none() {
        let made = |year| {
            let mut params = rcgen::CertificateParams::new(vec!["a".to_owned()]).unwrap();
            params.not_after = rcgen::date_time_ymd(year, 3, 1);
            let key = rcgen::KeyPair::generate().unwrap();
            params.self_signed(&key).unwrap().pem()
        };
        let (late, early) = (made(2060), made(2031));
        assert_eq!(earliest_expiry(late.as_bytes()), Some(2_845_324_800));
        assert_eq!(
            earliest_expiry(format!("{late}{early}").as_bytes()),
            Some(1_930_089_600)
        );
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ca.pem");
        assert_eq!(earliest_expiry_of_file(&file), None);
        for (text, ends) in [
            (&late, Some(2_845_324_800)),
            (&format!("{late}{early}"), Some(1_930_089_600)),
        ] {
            std::fs::write(&file, text).unwrap();
            assert_eq!(earliest_expiry_of_file(&file), ends);
            assert_eq!(earliest_expiry_of_file(&file), ends, "as it was known");
        }
        assert_eq!(earliest_expiry(b"nonsense"), None);
        assert_eq!(not_after(&[0x30, 0x84, 0xff, 0xff, 0xff, 0xff]), None);
    }
}
