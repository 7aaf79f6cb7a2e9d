//! Fault switches of the provider, each on for ever or for a number of requests.
//!
//! `requests` are those to `POST /charges`. A request that ends before it meets a switch does not use it up.

use std::time::Duration;

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use serde_json::{Map, Value, json};

use super::Provider;
use super::refusal::Refusal;

/// Maximum delay of `slow`.
const MAX_SLOW_MS: u64 = 30_000;
/// Delay of `slow` that the page offers.
const USUAL_SLOW_MS: u64 = 2000;

/// Faults, besides being slow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Switch {
    Refuse,
    ErrorBefore,
    Decline,
    TimeoutAfterCharging,
    DropResponse,
    ErrorAfter,
    LoseWebhooks,
    DoubleWebhooks,
    ShuffleWebhooks,
}

impl Switch {
    /// All switches in the order in which a request meets them, with their names in the API.
    pub(super) const ALL: [(Switch, &str); 9] = [
        (Switch::Refuse, "refuse"),
        (Switch::ErrorBefore, "error_before"),
        (Switch::Decline, "decline"),
        (Switch::TimeoutAfterCharging, "timeout_after_charging"),
        (Switch::DropResponse, "drop_response"),
        (Switch::ErrorAfter, "error_after"),
        (Switch::LoseWebhooks, "lose_webhooks"),
        (Switch::DoubleWebhooks, "double_webhooks"),
        (Switch::ShuffleWebhooks, "shuffle_webhooks"),
    ];

    /// Returns a short description, for people.
    pub(super) fn meaning(self) -> &'static str {
        match self {
            Switch::Refuse => "answers 503, charges nothing",
            Switch::ErrorBefore => "answers 500, charges nothing",
            Switch::Decline => "declines every card",
            Switch::TimeoutAfterCharging => "charges, then says nothing",
            Switch::DropResponse => "charges, then closes the connection",
            Switch::ErrorAfter => "charges, then answers 500",
            Switch::LoseWebhooks => "sends no event",
            Switch::DoubleWebhooks => "sends the event twice",
            Switch::ShuffleWebhooks => "lets the next event overtake",
        }
    }
}

/// Duration of a fault.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) enum Setting {
    #[default]
    Off,
    On,
    /// On for this number of requests.
    Next(u32),
}

impl Setting {
    fn take(&mut self) -> bool {
        let was_on = *self != Setting::Off;
        if let Setting::Next(left) = *self {
            *self = if left > 1 { Setting::Next(left - 1) } else { Setting::Off };
        }
        was_on
    }

    fn read(value: &Value) -> Option<Setting> {
        match value {
            Value::Bool(true) => Some(Setting::On),
            Value::Bool(false) => Some(Setting::Off),
            number => match u32::try_from(number.as_u64()?).ok()? {
                0 => Some(Setting::Off),
                next => Some(Setting::Next(next)),
            },
        }
    }

    pub(super) fn show(self) -> Value {
        match self {
            Setting::Off => json!(false),
            Setting::On => json!(true),
            Setting::Next(left) => json!(left),
        }
    }
}

/// All switches. They are not in the ledger: a restarted provider has its initial ones.
#[derive(Clone, Debug)]
pub struct Switches {
    settings: [Setting; Switch::ALL.len()],
    slow_ms: u64,
    slow: Setting,
}

impl Default for Switches {
    fn default() -> Switches {
        Switches { settings: Default::default(), slow_ms: USUAL_SLOW_MS, slow: Setting::Off }
    }
}

impl Switches {
    /// Parses the switches that are on.
    pub fn from_json(text: &str) -> Result<Switches, String> {
        let mut switches = Switches::default();
        switches.change(text.as_bytes())?;
        Ok(switches)
    }

    /// Sets the named switches, and leaves the others; all or nothing.
    fn change(&mut self, json: &[u8]) -> Result<(), String> {
        let changes: Map<String, Value> = serde_json::from_slice(json)
            .map_err(|error| format!("an object is needed, such as {{\"decline\": true}}: {error}"))?;
        let mut changed = self.clone();
        for (name, value) in &changes {
            if name == "slow" {
                (changed.slow_ms, changed.slow) = read_slow(value)?;
                continue;
            }
            let Some((switch, _)) = Switch::ALL.iter().find(|(_, known)| known == name) else {
                let known: Vec<&str> = Switch::ALL.iter().map(|(_, known)| *known).collect();
                return Err(format!("there is no switch {name:?}; there are slow, {}", known.join(", ")));
            };
            *changed.setting(*switch) = Setting::read(value).ok_or_else(|| {
                format!("{name:?} is true, false, or the number of requests it is for, and not {value}")
            })?;
        }
        *self = changed;
        Ok(())
    }

    fn setting(&mut self, switch: Switch) -> &mut Setting {
        &mut self.settings[switch as usize]
    }

    pub(super) fn get(&self, switch: Switch) -> Setting {
        self.settings[switch as usize]
    }

    /// Returns the delay in milliseconds, and its duration.
    pub(super) fn slow(&self) -> (u64, Setting) {
        (self.slow_ms, self.slow)
    }

    /// Returns true if the switch is on for this request, which uses it up by one.
    pub(super) fn take(&mut self, switch: Switch) -> bool {
        self.setting(switch).take()
    }

    /// Returns the first of these switches that is on.
    pub(super) fn take_first(&mut self, switches: &[Switch]) -> Option<Switch> {
        switches.iter().copied().find(|switch| self.take(*switch))
    }

    /// Returns the delay of this request.
    pub(super) fn take_slow(&mut self) -> Duration {
        Duration::from_millis(if self.slow.take() { self.slow_ms } else { 0 })
    }

    fn show(&self) -> Value {
        let slow = match self.slow {
            Setting::Off => json!(0),
            Setting::On => json!(self.slow_ms),
            Setting::Next(next) => json!({ "ms": self.slow_ms, "next": next }),
        };
        let mut shown = Map::from_iter([("slow".to_owned(), slow)]);
        for (switch, name) in Switch::ALL {
            shown.insert(name.to_owned(), self.get(switch).show());
        }
        Value::Object(shown)
    }
}

/// Parses milliseconds, or milliseconds for a number of requests.
fn read_slow(value: &Value) -> Result<(u64, Setting), String> {
    let wrong = || {
        format!(
            "\"slow\" is the milliseconds before an answer, up to {MAX_SLOW_MS}, or \
             {{\"ms\": 500, \"next\": 1}} for the next request, and not {value}"
        )
    };
    let (ms, setting) = match value {
        Value::Bool(false) => (Some(0), Some(Setting::Off)),
        Value::Object(slow) if slow.keys().all(|name| name == "ms" || name == "next") => {
            let next = slow.get("next").map_or(Some(Setting::On), Setting::read);
            (slow.get("ms").and_then(Value::as_u64), next)
        }
        number => (number.as_u64(), Some(Setting::On)),
    };
    match (ms, setting) {
        (Some(0), Some(_)) => Ok((USUAL_SLOW_MS, Setting::Off)),
        (Some(ms), Some(setting)) if ms <= MAX_SLOW_MS => Ok((ms, setting)),
        _ => Err(wrong()),
    }
}

pub(super) async fn show(State(provider): State<Provider>) -> Json<Value> {
    Json(provider.switches().show())
}

pub(super) async fn change(State(provider): State<Provider>, body: Bytes) -> Result<Json<Value>, Refusal> {
    let mut switches = provider.switches();
    switches.change(&body).map_err(Refusal::bad_request)?;
    Ok(Json(switches.show()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_numbered_switch_is_used_up_and_true_stays_on() {
        let mut switches = Switches::from_json(r#"{"decline": 2, "refuse": true}"#).expect("it is right");
        let declined: Vec<bool> = (0..3).map(|_| switches.take(Switch::Decline)).collect();
        assert_eq!(declined, [true, true, false]);
        assert!((0..3).all(|_| switches.take(Switch::Refuse)));
    }

    #[test]
    fn slow_is_milliseconds_for_ever_or_for_some() {
        let mut switches = Switches::from_json(r#"{"slow": {"ms": 7, "next": 1}}"#).expect("it is right");
        assert_eq!([switches.take_slow(), switches.take_slow()].map(|wait| wait.as_millis()), [7, 0]);
        switches.change(br#"{"slow": 5}"#).expect("it is right");
        assert_eq!([switches.take_slow(), switches.take_slow()].map(|wait| wait.as_millis()), [5, 5]);
        assert_eq!(switches.show()["slow"], 5);
        switches.change(br#"{"slow": 0}"#).expect("it is right");
        assert_eq!(switches.take_slow().as_millis(), 0);
    }

    #[test]
    fn a_wrong_change_changes_nothing_and_says_why() {
        let mut switches = Switches::default();
        let wrong: [(&str, &str); 7] = [
            (r#"{"decline": true, "declines": true}"#, "no switch \"declines\"; there are slow, refuse"),
            (r#"{"decline": -1}"#, "and not -1"),
            (r#"{"decline": "yes"}"#, "and not \"yes\""),
            (r#"{"slow": true}"#, "milliseconds"),
            (r#"{"slow": 30001}"#, "up to 30000"),
            (r#"{"slow": {"ms": 5, "times": 1}}"#, "and not {"),
            ("[]", "an object is needed"),
        ];
        for (json, expected) in wrong {
            let why = switches.change(json.as_bytes()).expect_err(json);
            assert!(why.contains(expected), "{why}");
        }
        assert_eq!(switches.show(), Switches::default().show());
    }

    #[test]
    fn every_switch_has_its_own_place() {
        for (place, (switch, name)) in Switch::ALL.iter().enumerate() {
            assert_eq!(*switch as usize, place, "{name}");
        }
    }
}
