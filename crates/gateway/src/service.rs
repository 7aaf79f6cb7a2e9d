//! The services and databases that the settings name: the checks of their addresses, and the files for TLS with them.

use semel_flow::reconcile::http::{HttpLookUp, HttpLookUpError, LookUpReading};
use semel_outgoing::{Address, CertificateFiles, TlsSettings};
use semel_settings::{AddressChecks, ServiceTls};

/// The checks of addresses in a configuration: by the rules of the clients and stores that use them.
pub const ADDRESS_CHECKS: AddressChecks = AddressChecks {
    postgres: |text| match text.parse::<semel_stores::postgres::DatabaseAddress>() {
        Ok(_) => Ok(()),
        Err(error) => Err(error.to_string()),
    },
    service: |text| match text.parse::<Address>() {
        Ok(_) => Ok(()),
        Err(error) => Err(error.to_string()),
    },
    look_up: |text| match HttpLookUp::new(text, LookUpReading::default()) {
        Ok(_) => Ok(()),
        Err(HttpLookUpError::Address(_, why)) => Err(why),
        Err(HttpLookUpError::Tls(error)) => Err(error.to_string()),
    },
};

/// Returns the files for TLS with a service, as its client takes them.
pub fn tls_settings(tls: &ServiceTls) -> TlsSettings {
    let own = tls.certificate.clone().zip(tls.key.clone());
    let own = own.map(|(certificate, key)| CertificateFiles { certificate, key });
    TlsSettings { trust: tls.ca.clone().into(), own }
}
