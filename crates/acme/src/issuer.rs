//! The source of certificates, as the agent sees it.

use crate::authority::Authority;
use crate::domain_name::DomainName;
use crate::error::Error;
use crate::schedule::Suggestion;
use crate::settings::{Challenge, Settings};
use crate::storage::Storage;
use crate::validity::Validity;

/// Issues certificates.
pub(crate) trait Issuer {
    /// Obtains a certificate for a name. Returns its key and its chain in PEM.
    ///
    /// # Errors
    /// The authority cannot be reached, or refuses the order.
    fn obtain(
        &self,
        name: &DomainName,
        challenge: Challenge,
        storage: &Storage,
    ) -> Result<String, Error>;

    /// Asks in which period a certificate should be renewed.
    fn suggestion(&self, validity: &Validity, storage: &Storage, now_s: u64) -> Suggestion;
}

/// The authority of the settings.
pub(crate) struct AcmeIssuer(pub(crate) Settings);

impl AcmeIssuer {
    fn obtain_once(
        &self,
        name: &DomainName,
        challenge: Challenge,
        storage: &Storage,
    ) -> Result<String, Error> {
        Authority::open(&self.0, storage)?.obtain(name, challenge, storage)
    }
}

impl Issuer for AcmeIssuer {
    /// Obtains a certificate, and replaces an account that the authority no longer knows.
    fn obtain(
        &self,
        name: &DomainName,
        challenge: Challenge,
        storage: &Storage,
    ) -> Result<String, Error> {
        self.obtain_once(name, challenge, storage).or_else(|error| {
            if !error.is_account_lost() {
                return Err(error);
            }
            storage.forget_account();
            self.obtain_once(name, challenge, storage)
        })
    }

    fn suggestion(&self, validity: &Validity, storage: &Storage, now_s: u64) -> Suggestion {
        let authority = Authority::open(&self.0, storage).ok();
        Authority::suggestion(authority.as_ref(), validity, now_s)
    }
}
