//! The conversation with an authority: an account, an order, a challenge, and the certificate.

use std::time::Duration;

use instant_acme::{
    Account, AccountCredentials, AuthorizationStatus, CertificateIdentifier, ChallengeType,
    ExternalAccountKey, Identifier, NewAccount, NewOrder, Order, OrderStatus,
};
use rcgen::{CertificateParams, CustomExtension, DistinguishedName, KeyPair};

use crate::client::{Client, finish};
use crate::domain_name::DomainName;
use crate::error::Error;
use crate::schedule::{Suggestion, serial_text};
use crate::settings::{Challenge, Settings};
use crate::storage::Storage;
use crate::validity::Validity;

/// The pause between two questions about the state of an order, and its upper limit.
const POLL: Duration = Duration::from_millis(500);
const POLL_MAX: Duration = Duration::from_secs(10);

/// The time for an authority to check a challenge, and the time to issue the certificate.
const CHECK_MAX: Duration = Duration::from_secs(180);

/// The maximum number of attempts at a request whose nonce the authority rejects. In each attempt, the ACME crate
/// itself tries three nonces.
const NONCE_ATTEMPTS: u32 = 8;

/// The time in seconds after which the authority is asked again for its suggestions.
const SUGGESTION_S: u64 = 6 * 3600;

/// An authority, with the account in the storage.
pub(crate) struct Authority {
    account: Account,
    client: Client,
}

/// The files of a challenge's answer, which are removed after the check.
struct Answer(std::path::PathBuf);

impl Drop for Answer {
    fn drop(&mut self) {
        // The next attempt sweeps any remaining file.
        let _ = std::fs::remove_file(&self.0);
    }
}

impl Authority {
    /// Opens the account in the storage, or creates one.
    ///
    /// # Errors
    /// The authority does not respond, or refuses the account.
    pub(crate) fn open(settings: &Settings, storage: &Storage) -> Result<Self, Error> {
        let client = Client::new(settings.ca.as_deref())?;
        let builder = || Account::builder_with_http(Box::new(client.clone()));
        if let Some(credentials) = storage.account::<AccountCredentials>()
            && let Ok(account) =
                retried(|| finish(builder().from_credentials(clone_of(&credentials)?)))
        {
            return Ok(Self { account, client });
        }
        let contacts: Vec<_> = settings.contacts.iter().map(String::as_str).collect();
        let account = NewAccount {
            contact: &contacts,
            terms_of_service_agreed: true,
            only_return_existing: false,
        };
        let key = settings.external_account.as_ref();
        let key = key.map(|key| ExternalAccountKey::new(key.key_id.clone(), &key.key));
        let created = retried(|| {
            finish(builder().create(&account, settings.directory.clone(), key.as_ref()))
        });
        let (account, credentials) = created.map_err(|error| explained(&error, &client))?;
        storage.write_account(&credentials)?;
        Ok(Self { account, client })
    }

    /// Obtains a certificate for a name. Returns its key and its chain in PEM.
    ///
    /// # Errors
    /// The authority refuses the order, or finds the challenge's answer wrong.
    pub(crate) fn obtain(
        &self,
        name: &DomainName,
        challenge: Challenge,
        storage: &Storage,
    ) -> Result<String, Error> {
        let identifiers = [Identifier::Dns(name.to_string())];
        let order = NewOrder::new(&identifiers);
        let mut order = self.ask(|| finish(self.account.new_order(&order)))?;
        let answer = self.answer(&mut order, name, challenge, storage)?;
        let status = self.wait_while(&mut order, OrderStatus::Pending)?;
        drop(answer);
        if status == OrderStatus::Invalid {
            return Err(self.refusal(&mut order, name));
        }
        let (request, key) = signing_request(name)?;
        let mut is_finalized = false;
        while !is_finalized && self.status_of(&mut order)? == OrderStatus::Ready {
            is_finalized = self.ask_nonce(|| finish(order.finalize_csr(&request)))?.is_some();
        }
        let status = self.wait_while(&mut order, OrderStatus::Processing)?;
        if status != OrderStatus::Valid {
            return Err(self.refusal(&mut order, name));
        }
        let chain = loop {
            if let Some(chain) = self.ask_nonce(|| finish(order.certificate()))? {
                break chain;
            }
        };
        let chain = chain.ok_or_else(|| Error::new("the authority has sent no certificate"))?;
        Ok(format!("{key}{chain}"))
    }

    /// Returns the reason if the stored account cannot be used.
    pub(crate) fn damaged_account(storage: &Storage) -> Option<Error> {
        storage.damaged_account::<AccountCredentials>()
    }

    /// Asks in which period a certificate should be renewed. An authority that cannot be reached, or has no
    /// suggestions, is asked again later.
    pub(crate) fn suggestion(this: Option<&Self>, validity: &Validity, now_s: u64) -> Suggestion {
        let serial = serial_text(&validity.serial);
        let none = Suggestion {
            serial: serial.clone(),
            ask_again_s: now_s + SUGGESTION_S,
            ..Suggestion::default()
        };
        let (Some(this), Some(key)) = (this, &validity.authority_key) else { return none };
        let identifier = CertificateIdentifier::new(key[..].into(), validity.serial[..].into());
        match finish(this.account.renewal_info(&identifier)) {
            Ok((info, pause)) => {
                let seconds =
                    |time: time::OffsetDateTime| u64::try_from(time.unix_timestamp()).unwrap_or(0);
                let pause_s = pause.as_secs().clamp(3600, 4 * SUGGESTION_S);
                Suggestion {
                    serial,
                    start_s: seconds(info.suggested_window.start),
                    end_s: seconds(info.suggested_window.end),
                    ask_again_s: now_s + pause_s,
                }
            }
            Err(_) => none,
        }
    }

    /// Writes the answer to a challenge into the storage, from which the server's workers send it, and asks the
    /// authority to check the answer. Returns `None` if the account is already authorized for the name.
    fn answer(
        &self,
        order: &mut Order,
        name: &DomainName,
        challenge: Challenge,
        storage: &Storage,
    ) -> Result<Option<Answer>, Error> {
        for _ in 0..NONCE_ATTEMPTS {
            let mut authorizations = order.authorizations();
            let found = self.ask_nonce(|| finish(authorizations.next()).transpose())?;
            let Some(found) = found else { continue };
            let mut authorization =
                found.ok_or_else(|| Error::new("the authority's order has no authorization"))?;
            match authorization.status {
                AuthorizationStatus::Valid => return Ok(None),
                AuthorizationStatus::Pending => {}
                other => {
                    return Err(Error::new(format_args!(
                        "the authority's authorization is {other:?}"
                    )));
                }
            }
            let kind = match challenge {
                Challenge::Http01 => ChallengeType::Http01,
                Challenge::TlsAlpn01 => ChallengeType::TlsAlpn01,
            };
            let mut handle = authorization.challenge(kind).ok_or_else(|| {
                Error::new(format_args!("the authority does not offer the challenge {challenge}"))
            })?;
            let key = handle.key_authorization();
            let answer = match challenge {
                Challenge::Http01 => {
                    let path = storage.folder().http_answer(handle.token.as_bytes());
                    let path =
                        path.ok_or_else(|| Error::new("the authority's token is malformed"))?;
                    storage.write_file(&path, key.as_str().as_bytes())?;
                    Answer(path)
                }
                Challenge::TlsAlpn01 => {
                    let path = storage.folder().tls_answer(name.as_str());
                    storage
                        .write_file(&path, tls_answer(name, key.digest().as_ref())?.as_bytes())?;
                    Answer(path)
                }
            };
            if self.ask_nonce(|| finish(handle.set_ready()))?.is_some() {
                return Ok(Some(answer));
            }
        }
        Err(Error::new("the authority rejects each nonce that it gives"))
    }

    /// Waits until the status of an order is no longer `status`.
    fn wait_while(&self, order: &mut Order, status: OrderStatus) -> Result<OrderStatus, Error> {
        let mut waited = Duration::ZERO;
        let mut pause = POLL;
        loop {
            let current = self.status_of(order)?;
            if current != status {
                return Ok(current);
            }
            if waited >= CHECK_MAX {
                let seconds = CHECK_MAX.as_secs();
                return Err(Error::new(format_args!(
                    "the authority has not decided within {seconds} s"
                )));
            }
            let asked = self.client.retry_after_s().map(Duration::from_secs);
            let this = asked.unwrap_or(pause).min(POLL_MAX);
            std::thread::sleep(this);
            waited += this;
            pause = (pause * 2).min(POLL_MAX);
        }
    }

    /// Asks the authority for the status of an order.
    fn status_of(&self, order: &mut Order) -> Result<OrderStatus, Error> {
        loop {
            let state = self.ask_nonce(|| finish(order.refresh()).map(|state| state.status))?;
            if let Some(state) = state {
                return Ok(state);
            }
        }
    }

    /// Returns the reason for which an order has failed, in the words of the authority.
    fn refusal(&self, order: &mut Order, name: &DomainName) -> Error {
        let mut authorizations = order.authorizations();
        let mut reason = None;
        while let Some(Ok(mut authorization)) = finish(authorizations.next()) {
            let Ok(state) = finish(authorization.refresh()) else { continue };
            let errors = state.challenges.iter().filter_map(|challenge| challenge.error.as_ref());
            reason = errors.map(ToString::to_string).next().or(reason);
        }
        let order_error = order.state().error.as_ref().map(ToString::to_string);
        let reason = reason.or(order_error).unwrap_or_else(|| "it gives no reason".to_owned());
        let error = Error::new(format_args!("the authority refuses {name}: {reason}"));
        error.hint(format_args!(
            "the name must lead to this server, and the authority must reach port 80 or 443 of it"
        ))
    }

    /// Asks until a nonce is accepted.
    fn ask<T>(&self, mut ask: impl FnMut() -> Result<T, instant_acme::Error>) -> Result<T, Error> {
        retried(&mut ask).map_err(|error| explained(&error, &self.client))
    }

    /// Asks once. Returns `None` if the authority has rejected the nonces of the ACME crate: another try gets new ones.
    fn ask_nonce<T>(
        &self,
        ask: impl FnOnce() -> Result<T, instant_acme::Error>,
    ) -> Result<Option<T>, Error> {
        match ask() {
            Ok(answer) => Ok(Some(answer)),
            Err(error) if is_nonce_error(&error) => Ok(None),
            Err(error) => Err(explained(&error, &self.client)),
        }
    }
}

fn clone_of(credentials: &AccountCredentials) -> Result<AccountCredentials, instant_acme::Error> {
    Ok(serde_json::from_value(serde_json::to_value(credentials)?)?)
}

/// Repeats a request as long as the authority rejects its nonces, within limits.
fn retried<T>(
    mut ask: impl FnMut() -> Result<T, instant_acme::Error>,
) -> Result<T, instant_acme::Error> {
    for _ in 1..NONCE_ATTEMPTS {
        match ask() {
            Err(error) if is_nonce_error(&error) => {}
            outcome => return outcome,
        }
    }
    ask()
}

fn is_nonce_error(error: &instant_acme::Error) -> bool {
    let instant_acme::Error::Api(problem) = error else { return false };
    problem.r#type.as_deref() == Some("urn:ietf:params:acme:error:badNonce")
}

fn explained(error: &instant_acme::Error, client: &Client) -> Error {
    let instant_acme::Error::Api(problem) = error else {
        return Error::new(format_args!("cannot ask the authority: {error}"));
    };
    let kind = problem.r#type.as_deref().unwrap_or_default();
    let kind = kind.strip_prefix("urn:ietf:params:acme:error:").unwrap_or(kind);
    let failure = Error::new(format_args!("the authority refuses the request: {problem}"))
        .retry_after(client.retry_after_s());
    match kind {
        "externalAccountRequired" => failure
            .hint("get a key from the authority, and give --acme-eab-kid and --acme-eab-key-file"),
        "accountDoesNotExist" => failure.account_lost(),
        "rateLimited" => failure.hint("the next attempt waits as long as the authority asks for"),
        _ => failure,
    }
}

/// Creates a key, and the request for its certificate. Returns the request in DER and the key in PEM.
fn signing_request(name: &DomainName) -> Result<(Vec<u8>, String), Error> {
    let failed = |error: rcgen::Error| Error::new(format_args!("cannot make a key: {error}"));
    let mut params = CertificateParams::new([name.to_string()]).map_err(failed)?;
    params.distinguished_name = DistinguishedName::new();
    let key = KeyPair::generate().map_err(failed)?;
    let request = params.serialize_request(&key).map_err(failed)?;
    Ok((request.der().to_vec(), key.serialize_pem()))
}

/// Creates the certificate that answers the challenge TLS-ALPN-01 (RFC 8737, 3), with its key, in PEM.
fn tls_answer(name: &DomainName, digest: &[u8]) -> Result<String, Error> {
    let failed = |error: rcgen::Error| Error::new(format_args!("cannot make an answer: {error}"));
    let mut params = CertificateParams::new([name.to_string()]).map_err(failed)?;
    params.custom_extensions = vec![CustomExtension::new_acme_identifier(digest)];
    let key = KeyPair::generate().map_err(failed)?;
    let certificate = params.self_signed(&key).map_err(failed)?;
    Ok(format!("{}{}", key.serialize_pem(), certificate.pem()))
}
