//! Commands that clients ask for. A seed always gives the same commands.

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use semel_chaos::reading::CANARY;
use semel_checker::event::Command;
use semel_testkit::Chance;
use serde_json::json;

use crate::settings::PAYMENTS;

/// Command that clients ask for.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) number: u64,
    pub(crate) command: Command,
}

impl Asked {
    pub(crate) fn number(seed: u64, number: u64) -> Asked {
        let mut chance = Chance::of(seed, &format!("command {number}"));
        let command = Command {
            tenant: format!("tenant-{}", number % 3),
            caller: format!("caller-{}", chance.below(5)),
            operation: PAYMENTS.to_owned(),
            key: format!("key-{number:07}-{:08x}", chance.draw() as u32),
        };
        Asked { number, command }
    }

    /// Returns the canary, which is unique to this command.
    pub(crate) fn canary(&self) -> String {
        format!("{CANARY}{:08x}-0", self.number)
    }

    pub(crate) fn request(&self) -> Result<Request<Full<Bytes>>, String> {
        let body = json!({ "canary": self.canary(), "amount": self.number }).to_string();
        let request = Request::builder()
            .method("POST")
            .uri("/payments")
            .header("host", "lab")
            .header("content-type", "application/json")
            .header("idempotency-key", &self.command.key)
            .header("x-tenant", &self.command.tenant)
            .header("x-caller", &self.command.caller)
            .body(Full::new(Bytes::from(body)));
        request.map_err(|error| error.to_string())
    }
}
