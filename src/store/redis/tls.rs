//! Certificates for TLS connections: of the authorities to trust, and of this process.

use std::io;

use redis::{ClientTlsConfig, ErrorKind, RedisError};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use rustls::{CertificateError, InconsistentKeys};

use super::answer::{cause, has_ended};
use crate::base::invalid::InvalidSetting;
use crate::store::{StoreError, StoreErrorKind};

/// Returns `pem`, the certificates of the authorities to trust, if it contains at least one
/// certificate.
pub(super) fn read_roots(pem: Vec<u8>) -> Result<Vec<u8>, InvalidSetting> {
    let begins = b"-----BEGIN CERTIFICATE-----";
    if pem.windows(begins.len()).any(|part| part == begins) {
        return Ok(pem);
    }
    let problem = "certificate is none, must be one or several in PEM";
    Err(InvalidSetting::because(problem))
}

/// Creates the error for certificates that the client cannot read.
pub(super) fn not_pem(kind: ErrorKind) -> InvalidSetting {
    InvalidSetting::because(format!(
        "certificate cannot be read, must be in PEM ({kind:?})"
    ))
}

/// Checks the certificate chain and the private key that this process presents to the server.
pub(super) fn read_client(
    certificate: Vec<u8>,
    key: Vec<u8>,
) -> Result<ClientTlsConfig, InvalidSetting> {
    let wrong = |problem: &str| Err(InvalidSetting::because(problem));
    let chain = CertificateDer::pem_slice_iter(&certificate);
    let Ok(chain) = chain.collect::<Result<Vec<_>, _>>() else {
        return wrong("client certificate cannot be read, must be in PEM");
    };
    if chain.is_empty() {
        return wrong("client certificate is none, must be one or several in PEM");
    }
    // The errors of the parser may contain parts of the key.
    let Ok(private) = PrivateKeyDer::from_pem_slice(&key) else {
        return wrong("client key is none, must be a private key in PEM, without a passphrase");
    };
    let own;
    let provider = match CryptoProvider::get_default() {
        Some(provider) => provider,
        None => {
            own = ring::default_provider();
            &own
        }
    };
    match CertifiedKey::from_der(chain, private, provider) {
        Ok(_) => Ok(ClientTlsConfig {
            client_cert: certificate,
            client_key: key,
        }),
        Err(rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch)) => {
            wrong("client key is not that of the client certificate")
        }
        Err(rustls::Error::InvalidCertificate(_)) => {
            wrong("client certificate cannot be read, must be one of X.509")
        }
        Err(_) => wrong("client key is of an unknown kind, must be RSA, ECDSA or Ed25519"),
    }
}

/// Installs `ring` as the cryptography provider of rustls, unless the program has installed one.
/// Without a provider, rustls panics if the program is built with several.
pub(super) fn choose_cryptography() {
    if CryptoProvider::get_default().is_none() {
        // An error means that another thread has installed a provider meanwhile.
        let _ = ring::default_provider().install_default();
    }
}

/// Returns the reason why a TLS connection could not be opened, if TLS is the cause. The error text
/// of rustls is not used, as it contains host names.
pub(super) fn reason(error: &RedisError, shows_certificate: bool) -> Option<StoreError> {
    use CertificateError as Bad;
    let unreachable = |detail| Some(StoreError::new(StoreErrorKind::Unreachable, detail));
    let unwanted = match shows_certificate {
        true => "may not take the client certificate",
        false => "may want a client certificate",
    };
    match tls_error(error) {
        Some(rustls::Error::InvalidCertificate(bad)) => unreachable(match bad {
            Bad::UnknownIssuer => "the certificate of the server is not by a trusted authority",
            Bad::NotValidForName | Bad::NotValidForNameContext { .. } => {
                "the certificate of the server is for another host"
            }
            Bad::Expired | Bad::ExpiredContext { .. } => "the certificate of the server is expired",
            _ => "the certificate of the server cannot be used",
        }),
        Some(rustls::Error::AlertReceived(_)) => {
            let detail = format!("the server refused the TLS connection, it {unwanted}");
            Some(StoreError::new(StoreErrorKind::Refused, detail))
        }
        Some(_) => unreachable("there is no TLS with the server"),
        // With TLS 1.3 the server can check the client's certificate after the client has sent its
        // first command, and the connection may end before the client reads the reason.
        None if has_ended(error) => {
            let detail = format!("the server ended the new TLS connection, it {unwanted}");
            Some(StoreError::new(StoreErrorKind::Unreachable, detail))
        }
        None => None,
    }
}

/// Returns the error of rustls in `error`.
fn tls_error(error: &RedisError) -> Option<&rustls::Error> {
    let cause = cause(error)?;
    let inner = cause
        .downcast_ref::<io::Error>()
        .and_then(io::Error::get_ref);
    inner.map_or_else(|| cause.downcast_ref(), |inner| inner.downcast_ref())
}
