//! Describes the failure of a session.

use rustls::{AlertDescription, CertificateError, Error, InvalidMessage, PeerIncompatible};
use thruway_sys::printable;

/// The role of a peer in a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Peer {
    Client,
    Server,
}

impl Peer {
    fn name(self) -> &'static str {
        match self {
            Self::Client => "the client",
            Self::Server => "the server",
        }
    }
}

/// Describes `error` as a failure caused by the other end.
pub(crate) fn reason(error: &Error, peer: Peer) -> String {
    let name = peer.name();
    match error {
        Error::AlertReceived(alert) => of_alert(*alert, name),
        Error::PeerIncompatible(
            PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig
            | PeerIncompatible::ServerDoesNotSupportTls12Or13
            | PeerIncompatible::Tls12NotOffered
            | PeerIncompatible::Tls12NotOfferedOrEnabled
            | PeerIncompatible::Tls13RequiredForQuic
            | PeerIncompatible::SupportedVersionsExtensionRequired,
        ) => format!("protocol version: {name} speaks neither TLS 1.2 nor TLS 1.3"),
        Error::PeerIncompatible(why) => format!("{name} cannot be agreed with: {why:?}"),
        Error::InvalidMessage(InvalidMessage::UnknownProtocolVersion) => {
            format!("protocol version: {name} speaks a strange version")
        }
        Error::InvalidMessage(
            InvalidMessage::InvalidContentType | InvalidMessage::MessageTooLarge,
        ) => {
            format!("{name} does not speak TLS")
        }
        Error::NoCertificatesPresented => format!("certificate: {name} has sent none"),
        Error::InvalidCertificate(why) => format!("certificate of {name}: {}", of_certificate(why)),
        Error::NoApplicationProtocol => {
            format!("{name} speaks none of the offered protocols (ALPN)")
        }
        other => format!("{name} breaks the protocol: {other}"),
    }
}

/// Describes an alert by its name in RFC 8446 and its most likely meaning.
fn of_alert(alert: AlertDescription, name: &str) -> String {
    let (word, meaning) = match alert {
        AlertDescription::ProtocolVersion => {
            ("protocol_version", "protocol version: it speaks neither TLS 1.2 nor TLS 1.3")
        }
        AlertDescription::HandshakeFailure => {
            ("handshake_failure", "no common cipher or signature")
        }
        AlertDescription::InsufficientSecurity => {
            ("insufficient_security", "no cipher that it trusts")
        }
        AlertDescription::UnrecognisedName => ("unrecognized_name", "it has no host of that name"),
        AlertDescription::NoApplicationProtocol => {
            ("no_application_protocol", "it speaks none of the offered protocols")
        }
        AlertDescription::CertificateRequired => {
            ("certificate_required", "it requires a client certificate")
        }
        AlertDescription::BadCertificate => ("bad_certificate", "it refuses the certificate"),
        AlertDescription::UnsupportedCertificate => {
            ("unsupported_certificate", "it does not accept this kind of certificate")
        }
        AlertDescription::CertificateExpired => {
            ("certificate_expired", "the certificate has expired")
        }
        AlertDescription::CertificateRevoked => {
            ("certificate_revoked", "the certificate is revoked")
        }
        AlertDescription::CertificateUnknown => {
            ("certificate_unknown", "it refuses the certificate")
        }
        AlertDescription::UnknownCA => {
            ("unknown_ca", "it does not trust the issuer of the certificate")
        }
        AlertDescription::AccessDenied => ("access_denied", "it denies access"),
        AlertDescription::InternalError => ("internal_error", "it has an internal error"),
        other => return format!("{name} has sent the alert {other:?}"),
    };
    format!("{name} has sent the alert {word}: {meaning}")
}

/// The reason with which clients refuse a server that has another name.
const NOT_FOR_NAME: &str = "it is not valid for the requested name";

fn of_certificate(why: &CertificateError) -> String {
    match why {
        CertificateError::BadEncoding => {
            "it is not a readable X.509 certificate of version 3".to_owned()
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "it has expired".to_owned()
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "it is not valid yet".to_owned()
        }
        CertificateError::Revoked => "it is revoked".to_owned(),
        CertificateError::UnknownIssuer => "its issuer is not trusted".to_owned(),
        CertificateError::NotValidForName => NOT_FOR_NAME.to_owned(),
        CertificateError::NotValidForNameContext { presented, .. } => {
            format!("{NOT_FOR_NAME}: {}", names(presented))
        }
        CertificateError::UnsupportedSignatureAlgorithmContext { .. } => {
            "it is signed with an algorithm that is no longer accepted, such as SHA-1".to_owned()
        }
        CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => {
            "its issuer is trusted with a key of another kind".to_owned()
        }
        CertificateError::BadSignature => {
            "a signature by its key is wrong, or its RSA key has fewer than 2,048 bits".to_owned()
        }
        CertificateError::Other(other) => of_other(&other.to_string()),
        other => other.to_string(),
    }
}

/// Describes an error for which rustls has only the name that its verifier (webpki) gives it.
fn of_other(name: &str) -> String {
    let meaning = match name {
        "CaUsedAsEndEntity" => "it is an authority's own certificate, as many self-signed ones are",
        "UnsupportedCertVersion" => "it is of an older version of X.509 than 3",
        "UnsupportedCriticalExtension" => "it has a critical extension that is unknown",
        "NameConstraintViolation" => "its authority may not issue certificates for its names",
        "PathLenConstraintViolated" | "EndEntityUsedAsCa" => {
            "its issuer may not issue certificates"
        }
        other => return format!("it is refused ({other})"),
    };
    meaning.to_owned()
}

/// Lists names that a certificate is valid for, which rustls presents as in `DnsName("example.org")`. They come from
/// the peer, so they are escaped, and few are shown.
fn names(presented: &[String]) -> String {
    const NAMES_MAX: usize = 5;
    if presented.is_empty() {
        return "it has no name (subjectAltName)".to_owned();
    }
    let plain = |name: &String| {
        let inner = name.split_once('(').map_or(name.as_str(), |(_, inner)| inner);
        printable::text(inner.trim_end_matches(')').trim_matches('"')).into_owned()
    };
    let shown = presented.iter().take(NAMES_MAX).map(plain).collect::<Vec<_>>().join(", ");
    let more = presented.len().saturating_sub(NAMES_MAX);
    if more > 0 {
        format!("it is for {shown} and {more} more")
    } else {
        format!("it is for {shown}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_name_what_the_other_end_did() {
        let alert = |alert| reason(&Error::AlertReceived(alert), Peer::Server);
        assert_eq!(
            alert(AlertDescription::HandshakeFailure),
            "the server has sent the alert handshake_failure: no common cipher or signature"
        );
        assert!(alert(AlertDescription::ProtocolVersion).contains("protocol version"));
        assert!(alert(AlertDescription::UnrecognisedName).contains("no host of that name"));
        let expired = Error::InvalidCertificate(CertificateError::Expired);
        assert_eq!(reason(&expired, Peer::Client), "certificate of the client: it has expired");
    }

    #[test]
    fn the_names_of_a_certificate_are_shown_and_escaped() {
        let dns = |name: &str| format!("DnsName(\"{name}\")");
        assert_eq!(names(&[]), "it has no name (subjectAltName)");
        let few = [dns("a.example"), "IpAddress(127.0.0.1)".to_owned(), dns("b\u{1b}[1m\n")];
        assert_eq!(names(&few), "it is for a.example, 127.0.0.1, b\\033[1m\\n");
        let many: Vec<_> = (0..7).map(|number| dns(&number.to_string())).collect();
        assert_eq!(names(&many), "it is for 0, 1, 2, 3, 4 and 2 more");
    }

    /// The verifier's own errors are known by their names only. They are those of webpki 0.103.
    #[test]
    fn errors_that_only_the_verifier_names_are_explained() {
        assert!(of_other("UnsupportedCertVersion").contains("an older version of X.509"));
        assert_eq!(
            of_other("MaximumPathDepthExceeded"),
            "it is refused (MaximumPathDepthExceeded)"
        );
    }
}
