//! Introduction of the payment service after the story: one line of JSON on its standard input. The service opens
//! its page and sends its events once it has it.

use std::net::SocketAddr;

use serde_json::{Value, json};

/// Addresses around the payment service, and the payment that the story left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Introduction {
    /// Address of the gateway for clients.
    pub(super) gateway: SocketAddr,
    /// Address of the gateway for operators.
    pub(super) admin: SocketAddr,
    /// Address of the service itself, past the gateway.
    pub(super) service: SocketAddr,
    /// Payment to be settled.
    pub(super) left: LeftPayment,
}

/// Payment whose outcome is unknown, because the service died after the charge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LeftPayment {
    /// Id of the command.
    pub(super) operation_id: String,
    /// Key of the client.
    pub(super) key: String,
    /// Amount in the request.
    pub(super) amount: u64,
    /// Number of the charge in the ledger.
    pub(super) charge: u64,
    /// Line of the charge in the ledger, which is the body that retries get.
    pub(super) body: String,
}

impl Introduction {
    /// Returns the introduction as JSON.
    pub(super) fn show(&self) -> Value {
        let LeftPayment { operation_id, key, amount, charge, body } = &self.left;
        json!({
            "gateway": self.gateway.to_string(),
            "admin": self.admin.to_string(),
            "service": self.service.to_string(),
            "left": { "operationId": operation_id, "key": key, "amount": amount, "charge": charge, "body": body },
        })
    }

    /// Parses the line; `None` if it is something else.
    pub(super) fn parse(line: &str) -> Option<Introduction> {
        let told: Value = serde_json::from_str(line).ok()?;
        let address = |name: &str| told[name].as_str()?.parse().ok();
        let left = &told["left"];
        let text = |name: &str| left[name].as_str().map(str::to_owned);
        let left = LeftPayment {
            operation_id: text("operationId")?,
            key: text("key")?,
            amount: left["amount"].as_u64()?,
            charge: left["charge"].as_u64()?,
            body: text("body")?,
        };
        let [gateway, admin, service] = ["gateway", "admin", "service"].map(address);
        Some(Introduction { gateway: gateway?, admin: admin?, service: service?, left })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_introduction_is_read_as_it_was_written() {
        let body = r#"{"amount":60,"charge":5,"operation":"0"}"#.to_owned();
        let left = LeftPayment { operation_id: "0".into(), key: "a-key".into(), amount: 60, charge: 5, body };
        let address = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let told =
            Introduction { gateway: address(8080), admin: address(9090), service: address(8081), left };
        assert_eq!(Introduction::parse(&told.show().to_string()), Some(told));
        assert_eq!(Introduction::parse("{}"), None);
    }
}
