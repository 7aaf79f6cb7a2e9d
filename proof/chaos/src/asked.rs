//! Commands that clients ask for. A seed always gives the same commands.

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use semel_chaos::reading::CANARY;
use semel_checker::event::Command;
use semel_testkit::Chance;
use serde_json::{Value, json};

use crate::settings::{BATCHES, CHARGES, DRAFTS, ORDERS, PAYMENTS, REPORTS, TRANSFERS};

/// Command that clients ask for.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    number: u64,
    pub(crate) command: Command,
    path: &'static str,
    pub(crate) reference: Option<String>,
}

/// Number of commands in a row that may share a reference.
const SAME_REFERENCE: u64 = 16;

impl Asked {
    /// Returns the command of this number. Two in a row share a key under different tenants.
    pub(crate) fn number(seed: u64, number: u64, broken: bool) -> Asked {
        let pair = number / 2;
        let mut chance = Chance::of(seed, &format!("command {pair}"));
        let (operation, path) = match chance.below(100) {
            _ if broken => (PAYMENTS, "/payments"),
            0..40 => (PAYMENTS, "/payments"),
            40..48 => (DRAFTS, "/drafts"),
            48..58 => (REPORTS, "/reports"),
            58..68 => (TRANSFERS, "/transfers"),
            68..82 => (ORDERS, "/orders"),
            82..92 => (CHARGES, "/charges"),
            _ => (BATCHES, "/batches"),
        };
        let key = format!("key-{pair:06}-{:08x}", chance.draw() as u32);
        let command = Command {
            tenant: format!("tenant-{}", (pair + number % 2) % 3),
            caller: format!("caller-{}", chance.below(2)),
            operation: operation.to_owned(),
            key,
        };
        let referring = ![DRAFTS, REPORTS].contains(&operation) && !broken && chance.percent(25);
        let reference = referring.then(|| format!("order-{:06}", number / SAME_REFERENCE));
        Asked { number, command, path, reference }
    }

    /// Returns true if the service executes the command, and not a gateway.
    pub(crate) fn is_local(&self) -> bool {
        [TRANSFERS, ORDERS, CHARGES, BATCHES].contains(&self.command.operation.as_str())
    }

    /// Returns the canary, which is unique to this command and payload.
    pub(crate) fn canary(&self, payload: u32) -> String {
        format!("{CANARY}{:08x}-{payload}", self.number)
    }

    /// Returns the request with this payload.
    pub(crate) fn request(&self, payload: u32) -> Result<Request<Full<Bytes>>, String> {
        let mut body = json!({ "canary": self.canary(payload), "amount": self.number });
        if let Some(reference) = &self.reference {
            body["reference"] = reference.as_str().into();
        }
        if self.command.operation == BATCHES {
            body["items"] = self.items(&body);
        }
        let request = Request::builder()
            .method("POST")
            .uri(self.path)
            .header("host", "lab")
            .header("content-type", "application/json")
            .header("idempotency-key", &self.command.key)
            .header("x-tenant", &self.command.tenant)
            .header("x-caller", &self.command.caller)
            .body(Full::new(Bytes::from(body.to_string())));
        request.map_err(|error| error.to_string())
    }
}

/// Largest number of items in a bulk request.
const MOST_ITEMS: u64 = 5;

impl Asked {
    fn items(&self, body: &Value) -> Value {
        let item = |number: u64| {
            let mut item = body.clone();
            item["clientItemId"] = format!("item-{number}").into();
            item
        };
        (0..2 + self.number % (MOST_ITEMS - 1)).map(item).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_commands_in_a_row_share_a_key_but_no_canary() {
        for pair in 0..200 {
            let [one, two] = [pair * 2, pair * 2 + 1].map(|number| Asked::number(5, number, false));
            assert_eq!(one.command.key, two.command.key);
            assert_ne!(one.command, two.command);
            assert_ne!(one.canary(0), two.canary(0));
        }
    }
}
