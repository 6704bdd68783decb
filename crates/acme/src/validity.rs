//! The facts in a certificate that determine its renewal.

use yasna::models::ObjectIdentifier;
use yasna::tags::TAG_UTCTIME;
use yasna::{ASN1Result, BERReader, Tag};

/// The extension that identifies the issuer's key (RFC 5280, 4.2.1.1).
const AUTHORITY_KEY_IDENTIFIER: &[u64] = &[2, 5, 29, 35];

/// The facts in a certificate that determine its renewal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Validity {
    /// The times between which the certificate is valid, in seconds since 1970.
    pub(crate) not_before_s: u64,
    pub(crate) not_after_s: u64,
    /// The serial number, as the contents of a DER integer.
    pub(crate) serial: Vec<u8>,
    /// The identifier of the issuer's key, if the certificate has it.
    pub(crate) authority_key: Option<Vec<u8>>,
}

impl Validity {
    /// Parses a certificate in DER. Returns `None` for anything else.
    pub(crate) fn read(certificate: &[u8]) -> Option<Self> {
        let read = yasna::parse_der(certificate, |reader| {
            reader.read_sequence(|certificate| {
                let body = certificate.next().read_sequence(|body| {
                    // The version.
                    body.read_optional(|reader| {
                        reader.read_tagged(Tag::context(0), |version| version.read_u8())
                    })?;
                    let serial = contents(&body.next().read_der()?).to_vec();
                    let _algorithm = body.next().read_der()?;
                    let _issuer = body.next().read_der()?;
                    let (not_before_s, not_after_s) = body.next().read_sequence(|times| {
                        Ok((seconds(times.next())?, seconds(times.next())?))
                    })?;
                    let _subject = body.next().read_der()?;
                    let _key = body.next().read_der()?;
                    for number in [1, 2] {
                        body.read_optional(|reader| {
                            reader.read_tagged_implicit(Tag::context(number), |id| {
                                id.read_bitvec_bytes()
                            })
                        })?;
                    }
                    let extensions = body.read_optional(|reader| {
                        reader.read_tagged(Tag::context(3), authority_key_in)
                    })?;
                    let authority_key = extensions.flatten();
                    Ok(Self { not_before_s, not_after_s, serial, authority_key })
                })?;
                let _algorithm = certificate.next().read_der()?;
                let _signature = certificate.next().read_der()?;
                Ok(body)
            })
        });
        read.ok()
    }
}

fn authority_key_in(extensions: BERReader<'_, '_>) -> ASN1Result<Option<Vec<u8>>> {
    let wanted = ObjectIdentifier::from_slice(AUTHORITY_KEY_IDENTIFIER);
    let mut found = None;
    extensions.read_sequence_of(|extension| {
        extension.read_sequence(|parts| {
            let name = parts.next().read_oid()?;
            parts.read_optional(|reader| reader.read_bool())?;
            let value = parts.next().read_bytes()?;
            if name == wanted {
                found = key_identifier(&value);
            }
            Ok(())
        })
    })?;
    Ok(found)
}

/// Returns the first element of `AuthorityKeyIdentifier`, which has the tag 0 in its context.
fn key_identifier(extension: &[u8]) -> Option<Vec<u8>> {
    const KEY_IDENTIFIER: u8 = 0x80;
    let inner = contents(extension);
    (inner.first() == Some(&KEY_IDENTIFIER)).then_some(())?;
    let length = usize::from(*inner.get(1)?);
    inner.get(2..2 + length).map(<[u8]>::to_vec)
}

/// Returns the contents of a value in DER, without its tag and its length.
fn contents(value: &[u8]) -> &[u8] {
    let length_bytes = match value.get(1) {
        Some(byte) if byte & 0x80 != 0 => usize::from(byte & 0x7f),
        _ => 0,
    };
    value.get(2 + length_bytes..).unwrap_or_default()
}

fn seconds(time: BERReader<'_, '_>) -> ASN1Result<u64> {
    let time = if time.lookahead_tag()? == TAG_UTCTIME {
        *time.read_utctime()?.datetime()
    } else {
        *time.read_generalized_time()?.datetime()
    };
    Ok(u64::try_from(time.unix_timestamp()).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, KeyPair, SerialNumber, date_time_ymd};

    #[test]
    fn times_and_identifiers_are_read_and_bytes_that_are_no_certificate_are_not() {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(["a.example".to_owned()]).unwrap();
        params.not_before = date_time_ymd(2026, 1, 1);
        params.not_after = date_time_ymd(2051, 1, 1);
        params.serial_number = Some(SerialNumber::from_slice(&[0x87, 0x65]));
        params.use_authority_key_identifier_extension = true;
        let certificate = params.self_signed(&key).unwrap();
        let validity = Validity::read(certificate.der()).unwrap();
        assert_eq!(validity.not_before_s, 1_767_225_600);
        // After 2049, times in certificates have the other form.
        assert_eq!(validity.not_after_s, 2_556_144_000);
        assert_eq!(validity.serial, [0, 0x87, 0x65]);
        assert!(validity.authority_key.is_some_and(|key| !key.is_empty()));
        assert_eq!(Validity::read(b"no certificate"), None);
        for length in 0..certificate.der().len() {
            assert_eq!(Validity::read(&certificate.der()[..length]), None);
        }
    }
}
